// TorchStore: the store that torch hands to a process group, as a Store of Tutti.
#ifndef TUTTI_TORCH_PROCESS_GROUP_TORCH_STORE_H_
#define TUTTI_TORCH_PROCESS_GROUP_TORCH_STORE_H_

#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tutti/store.h"

namespace tutti::dist {

// Get polls, with growing pauses of at most 20 ms: a blocking get of torch's TCP store keeps every other thread of the
// process from the store. Ends of other ranks are not told. Exceptions of the store become Unavailable that quotes
// them. Deadlines bound the waits for a value alone: torch's stores wait for the answers of their server without one,
// so that every call lasts as long as the process of the server is stopped. A waiting Get calls `check` twice a second,
// if there is one, and ends with its error.
std::shared_ptr<Store> MakeTorchStore(c10::intrusive_ptr<::c10d::Store> store,
                                      std::function<absl::Status()> check = nullptr);

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_TORCH_STORE_H_
