// The state of a device that every call needs: memory for the call, copies, order among streams, errors.
//
// A function of the C ABI is
//
//   return Guard([&] {
//     context->Begin(stream);          // after all work of earlier calls, which the host need not wait for
//     Dev<uint32_t> a = context->Scratch<uint32_t>(n);   // all memory first, then changes
//     ...
//     Launch<8>(*context, "name", n, kernel);
//     context->CopyOut(host, a, n);
//     context->Wait();                 // or context->End(), if the host needs no result
//   });
//
// A lookup has two streams: its probe goes on the context's own one, for which the host waits.
//
//     context->BeginProbe(stream, call.read);   // after what has changed rows or scratch memory, no more
//     ...
//     context->Follow(stream);                  // what copies rows: after the probe and all earlier calls
//     ...
//     context->EndReads(&call.read);            // back on the own stream
//     context->Wait();
//     context->Leave();
//
// Errors are thrown as a Failure, but never across the ABI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "het_tf/ext/gpu/cc/abi.h"
#include "het_tf/kernels/cuda/dev_ptr.h"
#include "het_tf/kernels/cuda/runtime.h"

namespace het::dev {

struct Failure {
  int code;
  std::string text;
};
[[noreturn]] void Fail(int code, std::string text);
int SetError(int code, const std::string& text);  // sets HetDevError's text; returns code

// Saves and restores the thread's device, in all functions of the C ABI that may use the device.
struct KeepsThread {
  KeepsThread() : was(runtime::Current()) {}
  ~KeepsThread() { runtime::Restore(was); }
  KeepsThread(const KeepsThread&) = delete;
  KeepsThread& operator=(const KeepsThread&) = delete;
  const runtime::OfThread was;
};

template <typename F>
int Guard(F f) {
  try {
    const KeepsThread keeps;
    f();
    return HET_DEV_OK;
  } catch (const Failure& failure) {
    return SetError(failure.code, failure.text);
  } catch (const std::bad_alloc&) {
    return SetError(HET_DEV_OUT_OF_HOST_MEMORY, "the host is out of memory");
  }
}

// Memory that its destructor frees.
class Block {
 public:
  Block() = default;
  Block(Block&& other) noexcept { Swap(other); }
  Block& operator=(Block&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~Block();
  template <typename T>
  Dev<T> as() const {
    return Dev<T>(static_cast<T*>(address_));
  }
  void* address() const { return address_; }
  void* Release() {
    void* address = address_;
    address_ = nullptr;
    return address;
  }
  size_t bytes() const { return bytes_; }

 private:
  friend struct ::HetDevContext;
  void Swap(Block& other) {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    std::swap(locked_, other.locked_);
    std::swap(device_, other.device_);
  }
  void* address_ = nullptr;
  size_t bytes_ = 0;
  bool locked_ = false;  // page-locked host memory, else device memory
  int device_ = 0;
};

// A point of a stream that others can wait for.
class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (event_ != nullptr) runtime::DestroyEvent(event_);
  }
  void Make() {
    if (event_ == nullptr) event_ = runtime::CreateEvent();
  }
  // Call Make before. The point is all that is on the stream now.
  void Record(HetDevStream stream) {
    runtime::Record(event_, stream);
    recorded_ = true;
  }
  bool recorded() const { return recorded_; }
  void* get() const { return event_; }

 private:
  void* event_ = nullptr;
  bool recorded_ = false;
};

// Blocks whose pieces calls use; after two equal calls it is one block.
struct Arena {
  std::vector<Block> blocks;
  size_t used = 0;   // bytes of the last block
  size_t least = 0;  // size of the next block
};

}  // namespace het::dev

struct HetDevContext {
 public:
  explicit HetDevContext(int device);
  ~HetDevContext();
  HetDevContext(const HetDevContext&) = delete;
  HetDevContext& operator=(const HetDevContext&) = delete;

  // Begins a call: later work goes on `stream`, after all work of earlier calls, for which the stream waits.
  // Frees device scratch memory, which that work may still use, and page-locked memory of an older call.
  void Begin(HetDevStream stream);
  // The same, but keeps the scratch memory of the previous call.
  void Continue(HetDevStream stream);
  // Begins a lookup. `read`: of its HetDevCall, whose memory the probe will write.
  void BeginProbe(HetDevStream stream, const het::dev::Event& read);
  // Later work goes on `stream`, after the probe so far, and after all work of earlier calls.
  void Follow(HetDevStream stream);
  // Later work goes on the own stream. What followed only reads, so that the next probe need not wait for it;
  // `scratch`: it reads scratch memory, so the probe has to.
  void EndReads(het::dev::Event* read, bool scratch);
  // Later work goes on `stream`, which has followed the probe.
  void Switch(HetDevStream stream) { stream_ = stream; }
  // Ends a lookup.
  void Leave() { in_call_ = false; }
  // Waits for all work of earlier calls, on any stream; the streams may have been destroyed.
  void Settle();
  // The same, as a call.
  void Finish();
  // Returns the number of calls so far.
  uint64_t calls() const { return calls_; }
  HetDevStream stream() const { return stream_; }
  // Waits for all work on the stream.
  void Wait();
  // Ends the call with work still on the stream.
  void End();

  // Uninitialised memory until the next Begin, aligned to 256 bytes; null for n = 0.
  template <typename T>
  het::dev::Dev<T> Scratch(size_t n) {
    return het::dev::Dev<T>(static_cast<T*>(Take(&scratch_, n * sizeof(T), false)));
  }
  // The same in page-locked host memory, for copies and the caller's results.
  template <typename T>
  T* HostScratch(size_t n) {
    return static_cast<T*>(Take(&turns_[turn_].host_scratch, n * sizeof(T), true));
  }
  // Words in device memory that are 0, and that the call leaves at 0 (Tile::Last); until the next Zeros.
  het::dev::Dev<uint32_t> Zeros(size_t n);
  // Words of which none has `NextVisit() << 32` in its upper half; until the next Unvisited.
  het::dev::Dev<uint64_t> Unvisited(size_t n);
  // Of Numbers (number.h).
  het::dev::Block& numbers() { return numbers_; }
  // Allocates permanent device memory. `what`: its purpose, for the message.
  het::dev::Block Allocate(size_t bytes, const std::string& what);
  het::dev::Block AllocateLocked(size_t bytes);

  // Asynchronous, on the stream. Host memory must be the caller's, HostScratch's or Stage's.
  template <typename T>
  void CopyIn(het::dev::Dev<T> to, const T* from, size_t n) {
    Copy(to.raw(), from, n * sizeof(T), het::dev::runtime::Direction::kIn);
  }
  template <typename T>
  void CopyOut(T* to, het::dev::Dev<T> from, size_t n) {
    Copy(to, from.raw(), n * sizeof(T), het::dev::runtime::Direction::kOut);
  }
  template <typename T>
  void CopyWithin(het::dev::Dev<T> to, het::dev::Dev<T> from, size_t n) {
    Copy(to.raw(), from.raw(), n * sizeof(T), het::dev::runtime::Direction::kWithin);
  }
  // Sets every byte to `byte`.
  template <typename T>
  void Fill(het::dev::Dev<T> to, uint8_t byte, size_t n) {
    if (n == 0) return;
    Working();
    het::dev::runtime::Fill(to.raw(), byte, n * sizeof(T), stream_);
  }
  // Copies an array in any host memory to device scratch memory.
  template <typename T>
  het::dev::Dev<T> Upload(const T* from, size_t n) {
    const het::dev::Dev<T> to = Scratch<T>(n);
    T* locked = HostScratch<T>(n);
    if (n > 0) std::memcpy(static_cast<void*>(locked), from, n * sizeof(T));
    CopyIn(to, locked, n);
    return to;
  }

  // Throws HET_DEV_FAILED with the kernel's name.
  void CheckLaunch(const char* kernel);

  // Returns a lookup's number for Slot::visit, never 0. Numbers repeat after 2^32 lookups: when Round()
  // changes, clear all stored visits.
  uint32_t NextVisit();
  uint32_t Round() const { return round_; }

  int device() const { return device_; }
  void* Stage(size_t bytes);
  void FailAllocation(uint64_t n) { fail_allocation_ = n; }

 private:
  // Page-locked memory of a call, and the event behind which the call's work is done. Calls take turns: the
  // host writes into the memory of the next turn while the device works on earlier ones.
  struct Turn {
    het::dev::Arena host_scratch;
    het::dev::Event event;
    bool pending = false;  // the event was recorded, and nobody has waited for it
  };
  static constexpr size_t kTurns = 4;

  // The part of Settle that a failed call needs.
  void SettleFailed();
  void CheckDevice();
  void AllDone();
  void Start(HetDevStream stream);
  void TakeTurn();
  // Later work on the stream comes after the event; null: after nothing.
  void After(void* event) {
    if (event != nullptr) het::dev::runtime::WaitOnStream(stream_, event);
  }
  // Call for all work: a call that has waited may go on, and then fail.
  void Working() { in_call_ = true; }
  void* Take(het::dev::Arena* arena, size_t bytes, bool locked);
  void Copy(void* to, const void* from, size_t bytes, het::dev::runtime::Direction direction) {
    if (bytes == 0) return;
    Working();
    het::dev::runtime::Copy(to, from, bytes, direction, stream_);
  }

  const int device_;
  HetDevStream stream_ = nullptr;
  bool in_call_ = false;        // work was put on the stream, and neither End nor Wait followed
  HetDevStream own_ = nullptr;  // of probes
  Turn turns_[kTurns];
  size_t turn_ = 0;  // of the current call
  het::dev::Event probed_;
  // Events, or null: nothing is left of it. The last work of all; the last one that has used more than rows
  // and parameters, or has changed rows.
  void* last_ = nullptr;
  void* changed_ = nullptr;
  const char* last_kernel_ = "none";
  het::dev::Arena scratch_;
  het::dev::Block stage_;
  het::dev::Block zeros_;
  het::dev::Block unvisited_;
  het::dev::Block numbers_;
  uint32_t unvisited_round_ = 0;
  uint64_t calls_ = 0;
  uint32_t visit_ = 0;
  uint32_t round_ = 0;
  uint64_t fail_allocation_ = 0;
};

namespace het::dev {
using Context = ::HetDevContext;
}
