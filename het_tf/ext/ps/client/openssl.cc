#include "het_tf/ext/ps/client/openssl.h"

#include <dlfcn.h>

#include <string>

namespace het {
namespace {

// DEEPBIND: resolves its own names before the process's. The sanitizers reject it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HET_NO_DEEPBIND 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HET_NO_DEEPBIND 1
#endif
#endif
#ifdef HET_NO_DEEPBIND
constexpr int kApart = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int kApart = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

// Connections may live until the process ends, so OpenSSL must not clean up at exit.
constexpr uint64_t kNoAtExit = 0x00080000;

constexpr char kRemedy[] =
    "; rediss:// needs OpenSSL 3. Remedy: apt-get install libssl3 (dnf install openssl-libs)";

Result<const OpenSsl*> Open() {
  void* const handle = dlopen("libssl.so.3", kApart);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return FailedPrecondition("libssl.so.3 cannot be loaded: " + std::string(why == nullptr ? "" : why) +
                              kRemedy);
  }
  auto* const ssl = new OpenSsl();
  const char* missing = nullptr;
#define HET_FIND(name, result, parameters)                                 \
  ssl->name = reinterpret_cast<decltype(ssl->name)>(dlsym(handle, #name)); \
  if (ssl->name == nullptr) missing = #name;
  HET_OPENSSL_FUNCTIONS(HET_FIND)
#undef HET_FIND
  if (missing == nullptr && ssl->OPENSSL_init_ssl(kNoAtExit, nullptr) == 1) return ssl;
  delete ssl;
  return FailedPrecondition(
      "libssl.so.3 " + (missing == nullptr ? "does not start" : "has no " + std::string(missing)) + kRemedy);
}

}  // namespace

Result<const OpenSsl*> OpenSsl::Get() {
  static const auto* const opened = new Result<const OpenSsl*>(Open());
  return *opened;
}

}  // namespace het
