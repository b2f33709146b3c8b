#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/fork.h"
#include "base/standard_descriptors.h"
#include "base/unique_fd.h"
#include "store/limits.h"
#include "store/mac.h"
#include "store/private_file.h"
#include "tutti/store.h"

namespace tutti {
namespace {

constexpr absl::Duration kLongestPause = absl::Milliseconds(20);
// The time between two checks, while Get waits, of which ranks are still there.
constexpr absl::Duration kLookForRanks = absl::Milliseconds(300);

// The file name of `key`: "k." and a readable form of the key, or for long keys "h." and a hash, so that no name is
// special to the file system.
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

// The folder in which each rank that has joined holds a file, "<rank>.<process>.<number>", as long as it is there.
constexpr absl::string_view kRanks = "ranks";

// A name that all stores of this process share, and that no other process has, children included.
std::string ProcessName() {
  static const Nonce random = [] {
    Nonce nonce;
    FillRandom(absl::MakeSpan(nonce));
    return nonce;
  }();
  return absl::StrCat(absl::BytesToHexString(View(random).substr(0, 8)), "-", ::getpid());
}

// The lock of a file: of all open files of this path, one at most has it. Its end gives the lock back by a call of its
// own, because a program that another thread is about to start has a copy of the descriptor for a moment.
class FileLock {
 public:
  explicit FileLock(UnsharedFd file) : file_(std::move(file)) {}
  FileLock(FileLock&&) = default;
  ~FileLock() {
    if (file_.valid()) ::flock(file_.get(), LOCK_UN);
  }

 private:
  UnsharedFd file_;
};

class FileStore final : public Store {
 public:
  explicit FileStore(absl::string_view directory) : directory_(directory) {}

  // Makes this process known to the other processes of the job as `rank`.
  absl::Status Join(Rank rank) {
    static std::atomic<int> counter{0};
    const std::string ranks = absl::StrCat(directory_, "/", kRanks);
    if (absl::Status status = MakePrivateDirectory(ranks); !status.ok()) return status;
    const std::string process = ProcessName();
    const absl::StatusOr<std::vector<RankFile>> files = RankFiles();
    if (!files.ok()) return files.status();
    for (const auto& [file, its_rank] : *files) {
      if (its_rank != rank || absl::StrContains(file, absl::StrCat(".", process, "."))) continue;
      return absl::AlreadyExistsError(absl::StrCat("directory ", directory_, ": another process has joined as rank ",
                                                   rank, "; the directory must be new for each job"));
    }
    absl::StatusOr<UnsharedFd> held = HoldPrivateFile(absl::StrCat(ranks, "/", rank, ".", process, ".", counter++), "");
    if (absl::IsUnimplemented(held.status())) return absl::OkStatus();  // without locks no rank hears of another's end
    if (!held.ok()) return held.status();
    held_ = *std::move(held);
    return absl::OkStatus();
  }

  absl::Status Set(absl::string_view key, absl::string_view value, absl::Time /*deadline*/) override {
    if (absl::Status status = CheckKeyAndValue(key, value); !status.ok()) return status;
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    return WritePrivateFile(Path(key), value);
  }

  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline, OnGone on_gone) override {
    const std::int64_t end_ns = NanosAt(deadline);
    std::vector<Rank> told;
    std::int64_t next_look_ns = 0;
    absl::Duration pause = absl::Microseconds(100);
    while (true) {
      absl::StatusOr<std::string> value = Look(key, deadline);
      if (!absl::IsNotFound(value.status())) return value;
      const absl::Duration left = LeftUntil(end_ns);
      if (left <= absl::ZeroDuration()) return KeyNotSet(key);
      if (MonotonicNanos() >= next_look_ns) {
        absl::Status status = TellWhoIsGone(told, on_gone);
        if (!status.ok()) {
          value = Look(key, deadline);
          return value.ok() ? value : status;
        }
        next_look_ns = NanosIn(kLookForRanks);
      }
      absl::SleepFor(std::min(pause, left));
      pause = std::min(2 * pause, kLongestPause);
    }
  }

  absl::StatusOr<std::string> Look(absl::string_view key, absl::Time /*deadline*/) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    absl::StatusOr<std::string> value = ReadPrivateFile(Path(key), kMaxValueBytes);
    if (absl::IsNotFound(value.status())) return NoSuchKey(key);
    return value;
  }

  absl::StatusOr<std::int64_t> Add(absl::string_view key, std::int64_t delta, absl::Time deadline) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    const absl::StatusOr<FileLock> lock = LockTable(key, NanosAt(deadline));
    if (!lock.ok()) return lock.status();
    absl::StatusOr<std::string> value = ReadPrivateFile(Path(key), kMaxValueBytes);
    if (!value.ok() && !absl::IsNotFound(value.status())) return value.status();
    absl::StatusOr<std::int64_t> sum = AddToValue(key, value.ok() ? *value : "", delta);
    if (!sum.ok()) return sum.status();
    if (absl::Status status = WritePrivateFile(Path(key), absl::StrCat(*sum)); !status.ok()) return status;
    return sum;
  }

  absl::Status Delete(absl::string_view key, absl::Time /*deadline*/) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    if (::unlink(Path(key).c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(Path(key), ": ", std::strerror(errno)));
  }

 private:
  std::string Path(absl::string_view key) const { return absl::StrCat(directory_, "/", FileName(key)); }

  absl::Status CheckProcess() const {
    if (maker_.is_this()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("file store ", directory_, " belongs to the process that opened it, not to a forked child"));
  }

  // Locks the table. Each call opens the lock's file anew, because a lock belongs to an open file: so threads exclude
  // each other as well. The wait ends at `end_ns`, because the process that holds the lock may be stopped.
  // No child keeps the lock that is forked meanwhile.
  absl::StatusOr<FileLock> LockTable(absl::string_view key, std::int64_t end_ns) const {
    const std::string path = absl::StrCat(directory_, "/lock");
    UnsharedFd file(UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)));
    const auto failed = [&] { return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno))); };
    if (!file.valid()) return failed();
    absl::Duration pause = absl::Microseconds(100);
    while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EINTR && errno != EWOULDBLOCK) return failed();
      const absl::Duration left = LeftUntil(end_ns);
      if (left <= absl::ZeroDuration()) {
        return absl::DeadlineExceededError(
            absl::StrCat("store key '", absl::CHexEscape(key), "': another process keeps ", path, " locked"));
      }
      absl::SleepFor(std::min(pause, left));
      pause = std::min(2 * pause, kLongestPause);
    }
    return FileLock(std::move(file));
  }

  using RankFile = std::pair<std::string, Rank>;

  // The files that ranks hold or have held, each with its rank: all of them, or an error.
  absl::StatusOr<std::vector<RankFile>> RankFiles() const {
    const std::string ranks = absl::StrCat(directory_, "/", kRanks);
    std::vector<RankFile> files;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(ranks, error), end; !error && entry != end; entry.increment(error)) {
      const std::vector<std::string> parts = absl::StrSplit(entry->path().filename().string(), '.');
      Rank rank = 0;
      if (parts.size() != 3 || absl::StrContains(parts[2], '~') || !absl::SimpleAtoi(parts[0], &rank)) continue;
      files.emplace_back(entry->path(), rank);
    }
    if (error) return absl::UnavailableError(absl::StrCat("directory ", ranks, ": ", error.message()));
    return files;
  }

  // Calls `on_gone` for ranks that are gone and not among `told`.
  absl::Status TellWhoIsGone(std::vector<Rank>& told, OnGone on_gone) const {
    const absl::StatusOr<std::vector<RankFile>> files = RankFiles();
    if (!files.ok()) return absl::OkStatus();  // ranks that cannot be listed now are not known to be gone
    absl::btree_map<Rank, bool> is_there;
    for (const auto& [file, rank] : *files) {
      const absl::StatusOr<bool> held = IsHeld(file);
      is_there[rank] |= !held.ok() || *held;  // a file that cannot be examined counts as held
    }
    for (const auto& [rank, there] : is_there) {
      if (there || std::find(told.begin(), told.end(), rank) != told.end()) continue;
      told.push_back(rank);
      if (absl::Status status = on_gone(rank); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  const std::string directory_;
  const MakerProcess maker_;
  UnsharedFd held_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Store>> MakeFileStore(absl::string_view directory, std::optional<Rank> rank) {
  HoldStandardDescriptors();
  if (absl::Status status = CheckPrivateDirectory(directory); !status.ok()) return status;
  auto store = std::make_shared<FileStore>(directory);
  if (!rank) return store;
  if (absl::Status status = store->Join(*rank); !status.ok()) return status;
  return store;
}

}  // namespace tutti
