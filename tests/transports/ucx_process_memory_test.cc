// Reading the memory of another process. The suite's name ends in DeathTest, so that GoogleTest runs it first: the
// other process is forked before this one has threads.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

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
  OtherProcess() {
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
      Serve(socket.get());
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
  [[noreturn]] void Serve(int socket) const {
    const std::string text = Payload(kBytes, 3);
    void* const gone = mmap(nullptr, 1 << 16, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(gone, 1 << 16);
    const Places places = {reinterpret_cast<std::uintptr_t>(nonce_.data()),
                           reinterpret_cast<std::uintptr_t>(text.data()), reinterpret_cast<std::uintptr_t>(gone)};
    if (write(socket, &places, sizeof(places)) != static_cast<ssize_t>(sizeof(places))) _exit(1);
    while (true) pause();
  }

  const Nonce nonce_ = NewNonce();
  Places places_;
  UniqueFd socket_;
  pid_t process_ = 0;
};

TEST(UcxProcessMemoryDeathTest, IsReadWhereTheNonceProvesWhoseItIs) {
  const OtherProcess other;
  const ProcessMemory memory = ProcessMemory::AtOtherEnd(other.socket(), other.places().nonce, other.nonce());
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
  const ProcessMemory memory = ProcessMemory::AtOtherEnd(other.socket(), other.places().nonce, other.nonce());
  ASSERT_TRUE(memory.readable());
  std::string text(100, '\0');
  EXPECT_FALSE(memory.Read(text.data(), other.places().nothing, text.size()).ok());
  other.End();
  EXPECT_FALSE(memory.Read(text.data(), other.places().text, text.size()).ok());
  EXPECT_FALSE(ProcessMemory().readable());
  EXPECT_FALSE(ProcessMemory().Read(text.data(), reinterpret_cast<std::uintptr_t>(text.data()), text.size()).ok());
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
