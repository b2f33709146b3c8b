#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/unique_fd.h"
#include "store/limits.h"
#include "store/mac.h"
#include "store/private_file.h"
#include "tutti/store.h"

namespace tutti {
namespace {

constexpr absl::Duration kLongestPause = absl::Milliseconds(20);

// A readable name for readable keys; every name starts with "k", so that none is special to the file system.
std::string FileName(absl::string_view key) {
  std::string name = "k.";
  for (char c : key) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.') {
      name.push_back(c);
    } else {
      absl::StrAppend(&name, "%", absl::BytesToHexString(absl::string_view(&c, 1)));
    }
  }
  if (name.size() <= 160) return name;
  return absl::StrCat("h.", absl::BytesToHexString(View(Sha256(key))));
}

class FileStore final : public Store {
 public:
  explicit FileStore(absl::string_view directory) : directory_(directory) {}

  absl::Status Set(absl::string_view key, absl::string_view value) override {
    if (absl::Status status = CheckKeyAndValue(key, value); !status.ok()) return status;
    return WritePrivateFile(Path(key), value);
  }

  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    absl::Duration pause = absl::Microseconds(100);
    while (true) {
      absl::StatusOr<std::string> value = ReadPrivateFile(Path(key), kMaxValueBytes);
      if (!absl::IsNotFound(value.status())) return value;
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) return KeyNotSet(key);
      absl::SleepFor(std::min(pause, left));
      pause = std::min(2 * pause, kLongestPause);
    }
  }

  absl::StatusOr<std::int64_t> Add(absl::string_view key, std::int64_t delta) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    // Each call opens the file anew, since a lock belongs to an open file: threads exclude each other as well.
    const std::string lock_path = absl::StrCat(directory_, "/lock");
    const UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    int locked = lock.valid() ? 0 : -1;
    while (locked == 0 && (locked = ::flock(lock.get(), LOCK_EX)) != 0 && errno == EINTR) locked = 0;
    if (locked != 0) return absl::UnavailableError(absl::StrCat(lock_path, ": ", std::strerror(errno)));
    absl::StatusOr<std::string> value = ReadPrivateFile(Path(key), kMaxValueBytes);
    if (!value.ok() && !absl::IsNotFound(value.status())) return value.status();
    absl::StatusOr<std::int64_t> sum = AddToValue(key, value.ok() ? *value : "", delta);
    if (!sum.ok()) return sum.status();
    if (absl::Status status = WritePrivateFile(Path(key), absl::StrCat(*sum)); !status.ok()) return status;
    return sum;
  }

  absl::Status Delete(absl::string_view key) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    if (::unlink(Path(key).c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(Path(key), ": ", std::strerror(errno)));
  }

 private:
  std::string Path(absl::string_view key) const { return absl::StrCat(directory_, "/", FileName(key)); }

  const std::string directory_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Store>> MakeFileStore(absl::string_view directory) {
  if (absl::Status status = MakePrivateDirectory(directory); !status.ok()) return status;
  return std::make_shared<FileStore>(directory);
}

}  // namespace tutti
