#include "transports/ucx/address.h"

#include <sys/random.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tutti::ucx {
namespace {

constexpr absl::string_view kMagic = "tutti-ucx-3";

void Put(std::string* out, const void* data, std::size_t bytes) { out->append(static_cast<const char*>(data), bytes); }

void PutString(std::string* out, absl::string_view s) {
  const auto bytes = static_cast<std::uint32_t>(s.size());
  Put(out, &bytes, sizeof(bytes));
  Put(out, s.data(), s.size());
}

bool Take(absl::string_view* in, void* data, std::size_t bytes) {
  if (in->size() < bytes) return false;
  std::memcpy(data, in->data(), bytes);
  in->remove_prefix(bytes);
  return true;
}

bool TakeString(absl::string_view* in, std::string* s) {
  std::uint32_t bytes = 0;
  if (!Take(in, &bytes, sizeof(bytes)) || in->size() < bytes) return false;
  s->assign(in->data(), bytes);
  in->remove_prefix(bytes);
  return true;
}

}  // namespace

Nonce NewNonce() {
  Nonce nonce;
  // Blocks until the kernel has entropy; cannot fail for so few bytes.
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) std::abort();
  return nonce;
}

bool Equal(const Nonce& a, const Nonce& b) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

std::string ContainerName() {
  std::string name;
  for (const char* const shared : {"/proc/self/ns/pid", "/proc/self/ns/ipc", "/dev/shm"}) {
    struct stat status = {};
    if (stat(shared, &status) == 0) absl::StrAppend(&name, status.st_dev, ":", status.st_ino, " ");
  }
  return name;
}

std::string Encode(const PeerAddress& address) {
  std::string out(kMagic.data(), kMagic.size());
  PutString(&out, address.node);
  Put(&out, &address.user, sizeof(address.user));
  PutString(&out, address.socket);
  Put(&out, address.nonce.data(), address.nonce.size());
  Put(&out, &address.region_bytes, sizeof(address.region_bytes));
  PutString(&out, address.container);
  PutString(&out, address.worker);
  PutString(&out, address.wire);
  return out;
}

absl::StatusOr<PeerAddress> DecodeAddress(absl::string_view blob) {
  PeerAddress address;
  std::array<char, kMagic.size()> magic;
  const bool valid =
      Take(&blob, magic.data(), magic.size()) && kMagic == absl::string_view(magic.data(), magic.size()) &&
      TakeString(&blob, &address.node) && Take(&blob, &address.user, sizeof(address.user)) &&
      TakeString(&blob, &address.socket) && Take(&blob, address.nonce.data(), address.nonce.size()) &&
      Take(&blob, &address.region_bytes, sizeof(address.region_bytes)) && TakeString(&blob, &address.container) &&
      TakeString(&blob, &address.worker) && TakeString(&blob, &address.wire) && blob.empty();
  if (!valid) return absl::InvalidArgumentError("its address is not from a UCX transport of this version");
  return address;
}

}  // namespace tutti::ucx
