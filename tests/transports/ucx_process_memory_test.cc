// Reading the memory of another process. The suite's name ends in DeathTest, so that GoogleTest runs it first: the
// other process is forked before this one has threads.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "tests/transports/payload.h"
#include "transports/ucx/process_memory.h"

namespace tutti::ucx {
namespace {

constexpr std::size_t kBytes = 3 << 20;

// The addresses, in the other process, of its nonce, of a text, and of pages that it has given back.
struct Places {
  std::uint64_t nonce = 0;
  std::uint64_t text = 0;
  std::uint64_t nothing = 0;
};

// A process that is connected to this one.
class OtherProcess {
 public:
  explicit OtherProcess(bool main_thread_ends = false) {
    const UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    socklen_t length = sizeof(address.sun_family);  // the system chooses a name
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener.get(), name, length), 0);
    length = sizeof(address);
    EXPECT_EQ(getsockname(listener.get(), name, &length), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    const timeval soon = {.tv_sec = 60, .tv_usec = 0};
    EXPECT_EQ(setsockopt(listener.get(), SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)), 0);
    process_ = fork();
    if (process_ == 0) {
      const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
      if (connect(socket.get(), name, length) != 0) _exit(1);
      Serve(socket.get(), main_thread_ends);
    }
    socket_ = UniqueFd(accept(listener.get(), nullptr, nullptr));
    EXPECT_EQ(read(socket_.get(), &places_, sizeof(places_)), static_cast<ssize_t>(sizeof(places_)));
  }
  ~OtherProcess() { End(); }
  void End() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    EXPECT_EQ(waitpid(process_, nullptr, 0), process_);
    process_ = 0;
  }

  const Nonce& nonce() const { return nonce_; }
  const Places& places() const { return places_; }
  int socket() const { return socket_.get(); }

 private:
  [[noreturn]] void Serve(int socket, bool main_thread_ends) const {
    const std::string text = Payload(kBytes, 3);
    void* const gone = mmap(nullptr, 1 << 16, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(gone, 1 << 16);
    const Places places = {reinterpret_cast<std::uintptr_t>(nonce_.data()),
                           reinterpret_cast<std::uintptr_t>(text.data()), reinterpret_cast<std::uintptr_t>(gone)};
    const auto serve = [&] {
      if (write(socket, &places, sizeof(places)) != static_cast<ssize_t>(sizeof(places))) _exit(1);
      while (true) pause();
    };
    if (!main_thread_ends) serve();
    std::thread([&] {
      // The state of the main thread is Z, a zombie, once it has ended.
      const std::string main = absl::StrCat("/proc/self/task/", getpid(), "/stat");
      for (std::string state; !absl::StrContains(state, ") Z "); std::getline(std::ifstream(main), state))
        sched_yield();
      serve();
    }).detach();
    syscall(SYS_exit, 0);  // of this thread alone, whose stack the other one goes on to use
    abort();
  }

  const Nonce nonce_ = NewNonce();
  Places places_;
  UniqueFd socket_;
  pid_t process_ = 0;
};

TEST(UcxProcessMemoryDeathTest, IsReadWhereTheNonceProvesWhoseItIs) {
  const OtherProcess other;
  ProcessMemory memory = ProcessMemory::AtOtherEnd(other.socket(), other.places().nonce, other.nonce());
  ASSERT_TRUE(memory.readable());
  std::string text(kBytes, '\0');
  EXPECT_EQ(memory.Read(text.data(), other.places().text, kBytes), absl::OkStatus());
  EXPECT_TRUE(text == Payload(kBytes, 3));
  EXPECT_FALSE(ProcessMemory::AtOtherEnd(other.socket(), other.places().nonce, NewNonce()).readable());
  EXPECT_FALSE(ProcessMemory::AtOtherEnd(other.socket(), other.places().text, other.nonce()).readable());
  EXPECT_FALSE(ProcessMemory::AtOtherEnd(other.socket(), other.places().nothing, other.nonce()).readable());
  EXPECT_FALSE(ProcessMemory::AtOtherEnd(/*socket=*/-1, other.places().nonce, other.nonce()).readable());
}

TEST(UcxProcessMemoryDeathTest, IsAnErrorToReadWhereNothingIs) {
  OtherProcess other;
  ProcessMemory memory = ProcessMemory::AtOtherEnd(other.socket(), other.places().nonce, other.nonce());
  ASSERT_TRUE(memory.readable());
  std::string text(100, '\0');
  EXPECT_FALSE(memory.Read(text.data(), other.places().nothing, text.size()).ok());
  other.End();
  EXPECT_FALSE(memory.Read(text.data(), other.places().text, text.size()).ok());
  EXPECT_FALSE(ProcessMemory().readable());
  EXPECT_FALSE(ProcessMemory().Read(text.data(), reinterpret_cast<std::uintptr_t>(text.data()), text.size()).ok());
}

TEST(UcxProcessMemoryDeathTest, IsReadAfterTheMainThreadHasEnded) {
  const OtherProcess other(/*main_thread_ends=*/true);
  ProcessMemory memory = ProcessMemory::AtOtherEnd(other.socket(), other.places().nonce, other.nonce());
  ASSERT_TRUE(memory.readable());
  std::string text(kBytes, '\0');
  EXPECT_EQ(memory.Read(text.data(), other.places().text, kBytes), absl::OkStatus());
  EXPECT_TRUE(text == Payload(kBytes, 3));
}

// A buffer that cannot be written is a mistake of this process, and no sign of the other one's end.
TEST(UcxProcessMemoryDeathTest, FaultsWhereTheCopyCannotBeWritten) {
  const OtherProcess other;
  ProcessMemory memory = ProcessMemory::AtOtherEnd(other.socket(), other.places().nonce, other.nonce());
  ASSERT_TRUE(memory.readable());
  auto* const pages =
      static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(mprotect(pages + kBytes / 2, 1 << 16, PROT_READ), 0);
  EXPECT_DEATH((void)memory.Read(pages, other.places().text, kBytes), "");
  munmap(pages, kBytes);
}

TEST(UcxProcessMemoryDeathTest, IsShownWhereThisProcessHasSome) {
  const std::string text = Payload(kBytes, 1);
  EXPECT_TRUE(ProcessMemory::IsShown(text.data(), text.size()));
  void* const pages = mmap(nullptr, 2 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_TRUE(ProcessMemory::IsShown(pages, 2 << 16));
  munmap(static_cast<char*>(pages) + (1 << 16), 1 << 16);
  EXPECT_FALSE(ProcessMemory::IsShown(pages, 2 << 16));
  munmap(pages, 1 << 16);
  EXPECT_FALSE(ProcessMemory::IsShown(pages, 1 << 16));
}

}  // namespace
}  // namespace tutti::ucx
