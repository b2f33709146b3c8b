// A store whose waiting Get hears of ranks that the transport has lost, and of what ends the call that waits.
#ifndef TUTTI_COMM_LOSS_AWARE_STORE_H_
#define TUTTI_COMM_LOSS_AWARE_STORE_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "tutti/store.h"

namespace tutti {

// Wraps `base`: a waiting Get also calls `on_gone` with the ranks that `lost` returns, which will set no more values;
// ranks are numbered as in `base`. Not every store knows when a rank ends; the store that torch.distributed hands over,
// for one, does not. Get also ends with the error that `ended` returns, if there is one. A waiting Get calls both twice
// a second.
std::shared_ptr<Store> MakeLossAwareStore(std::shared_ptr<Store> base, std::function<std::vector<Rank>()> lost,
                                          std::function<absl::Status()> ended = nullptr);

}  // namespace tutti

#endif  // TUTTI_COMM_LOSS_AWARE_STORE_H_
