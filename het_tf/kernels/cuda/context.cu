#include <algorithm>

#include "het_tf/kernels/cuda/context.h"

namespace het::dev {

namespace {

std::string& ErrorOfThread() {
  thread_local std::string text;
  return text;
}

constexpr size_t kSmallestBlock = size_t{1} << 20;

}  // namespace

void Fail(int code, std::string text) { throw Failure{code, std::move(text)}; }

int SetError(int code, const std::string& text) {
  try {
    ErrorOfThread() = text;
  } catch (const std::bad_alloc&) {
    ErrorOfThread().clear();
  }
  return code;
}

Block::~Block() {
  if (address_ == nullptr) return;
  try {
    runtime::Select(device_, "unknown");
    locked_ ? runtime::FreeLocked(address_) : runtime::Free(address_);
  } catch (const Failure&) {
    // The device is lost, and its memory with it.
  }
}

namespace {

// Keeps one block. Several are replaced by one of their total size at the next use; otherwise each call would
// allocate the part that does not fit into the first, which takes longer than the call itself.
void Rewind(Arena* arena) {
  if (arena->blocks.size() > 1) {
    for (const Block& block : arena->blocks) arena->least += block.bytes();
    arena->blocks.clear();
  }
  arena->used = 0;
}

}  // namespace
}  // namespace het::dev

using namespace het::dev;  // NOLINT: the context and the functions of the C ABI

HetDevContext::HetDevContext(int device) : device_(device) {
  runtime::Select(device_, last_kernel_);
  runtime::LoadCode();
  for (Turn& turn : turns_) turn.event.Make();
  probed_.Make();
  own_ = runtime::CreateStream();
}

HetDevContext::~HetDevContext() {
  try {
    runtime::Select(device_, last_kernel_);
    runtime::WaitForDevice(last_kernel_);
    runtime::DestroyStream(own_);
  } catch (const Failure&) {
  }
}

// An error of a kernel, of anybody, ends all later work of the process. Without this the call's first launch
// would seem to have failed.
void HetDevContext::CheckDevice() {
  const std::string error = runtime::SelectOrError(device_, own_);
  if (error.empty()) return;
  const bool busy = in_call_ || last_ != nullptr;
  Fail(HET_DEV_FAILED, "the GPU had failed before this call began, " +
                           (busy ? "at or before kernel '" + std::string(last_kernel_) + "', or in other work"
                                 : std::string("in other work")) +
                           " of this process: " + error);
}

void HetDevContext::Start(HetDevStream stream) {
  CheckDevice();
  SettleFailed();
  runtime::CheckStream(device_, stream);
  in_call_ = true;
  stream_ = stream;
  ++calls_;
}

void HetDevContext::TakeTurn() {
  if (turns_[turn_].pending) turn_ = (turn_ + 1) % kTurns;
  Turn& turn = turns_[turn_];
  if (turn.pending) runtime::WaitForEvent(turn.event.get(), last_kernel_);
  turn.pending = false;
  Rewind(&scratch_);
  Rewind(&turn.host_scratch);
}

void HetDevContext::Begin(HetDevStream stream) {
  Continue(stream);
  TakeTurn();
}

void HetDevContext::Continue(HetDevStream stream) {
  Start(stream);
  After(last_);  // also on the same stream: its handle may be that of another one, which was destroyed
}

void HetDevContext::BeginProbe(HetDevStream stream, const Event& read) {
  Start(stream);
  stream_ = own_;
  After(changed_);
  changed_ = nullptr;  // the host waits for the probe
  if (read.recorded()) After(read.get());
  TakeTurn();
}

void HetDevContext::Follow(HetDevStream stream) {
  probed_.Record(own_);
  stream_ = stream;
  After(last_);
  After(probed_.get());
}

void HetDevContext::EndReads(Event* read, bool scratch) {
  read->Record(stream_);
  last_ = read->get();
  if (scratch) changed_ = last_;
  stream_ = own_;
}

void HetDevContext::SettleFailed() {
  runtime::Select(device_, last_kernel_);
  if (!in_call_) return;  // else the call has failed, perhaps between kernels
  runtime::WaitForDevice(last_kernel_);
  zeros_ = Block();
  AllDone();
}

void HetDevContext::Settle() {
  SettleFailed();
  if (last_ != nullptr) runtime::WaitForEvent(last_, last_kernel_);
  AllDone();
}

// Each call comes after the one before it, so they are all done when the last one is.
void HetDevContext::AllDone() {
  in_call_ = false;
  last_ = changed_ = nullptr;
  for (Turn& turn : turns_) turn.pending = false;
}

void HetDevContext::Finish() {
  Settle();
  ++calls_;
}

void HetDevContext::Wait() {
  runtime::Wait(stream_, last_kernel_);
  if (stream_ != own_) AllDone();
}

void HetDevContext::End() {
  Turn& turn = turns_[turn_];
  turn.event.Record(stream_);
  turn.pending = true;
  last_ = changed_ = turn.event.get();
  in_call_ = false;
}

Block HetDevContext::Allocate(size_t bytes, const std::string& what) {
  Block block;
  if (bytes == 0) return block;
  const bool refuse = fail_allocation_ > 0 && --fail_allocation_ == 0;
  block.address_ = refuse ? nullptr : runtime::Allocate(bytes);
  if (block.address_ == nullptr) {
    Fail(HET_DEV_OUT_OF_MEMORY, what + " needs " + std::to_string(bytes) + " bytes of device memory; " +
                                    std::to_string(runtime::FreeBytes()) + " are free" +
                                    (refuse ? " (HetDevFailAllocation)" : ""));
  }
  block.bytes_ = bytes;
  block.device_ = device_;
  return block;
}

Block HetDevContext::AllocateLocked(size_t bytes) {
  Block block;
  if (bytes == 0) return block;
  const bool refuse = fail_allocation_ > 0 && --fail_allocation_ == 0;
  block.address_ = refuse ? nullptr : runtime::AllocateLocked(bytes);
  if (block.address_ == nullptr) {
    Fail(HET_DEV_OUT_OF_HOST_MEMORY, "there is no page-locked host memory for " + std::to_string(bytes) +
                                         " bytes" + (refuse ? " (HetDevFailAllocation)" : ""));
  }
  block.bytes_ = bytes;
  block.locked_ = true;
  block.device_ = device_;
  return block;
}

void* HetDevContext::Take(Arena* arena, size_t bytes, bool locked) {
  if (bytes == 0) return nullptr;
  bytes = (bytes + 255) / 256 * 256;
  if (arena->blocks.empty() || arena->blocks.back().bytes() - arena->used < bytes) {
    size_t all = 0;
    for (const Block& block : arena->blocks) all += block.bytes();
    const size_t size = std::max({bytes, all, arena->least, kSmallestBlock});
    arena->blocks.reserve(arena->blocks.size() + 1);
    arena->blocks.push_back(locked ? AllocateLocked(size) : Allocate(size, "a call"));
    arena->used = 0;
    arena->least = 0;
  }
  void* piece = static_cast<char*>(arena->blocks.back().address()) + arena->used;
  arena->used += bytes;
  return piece;
}

void HetDevContext::CheckLaunch(const char* kernel) {
  last_kernel_ = kernel;
  Working();
  runtime::CheckLaunch(kernel);
}

uint32_t HetDevContext::NextVisit() {
  // The first round is short, so that tests cover the end of a round.
  constexpr uint32_t kFirstRound = 6;
  if (visit_ == (round_ == 0 ? kFirstRound : ~uint32_t{0})) {
    visit_ = 0;
    ++round_;
  }
  return ++visit_;
}

Dev<uint32_t> HetDevContext::Zeros(size_t n) {
  if (zeros_.bytes() < n * sizeof(uint32_t)) {
    constexpr size_t kLeast = 4096;
    n = std::max(n, kLeast);
    Block larger = Allocate(n * sizeof(uint32_t), "counts of a call");
    zeros_ = std::move(larger);
    Fill(zeros_.as<uint32_t>(), 0, n);
  }
  return zeros_.as<uint32_t>();
}

Dev<uint64_t> HetDevContext::Unvisited(size_t n) {
  const bool grows = unvisited_.bytes() < n * sizeof(uint64_t);
  if (grows) {
    Block larger = Allocate(n * sizeof(uint64_t), "keys of a call");
    unvisited_ = std::move(larger);
  }
  if (grows || unvisited_round_ != round_) Fill(unvisited_.as<char>(), 0, unvisited_.bytes());
  unvisited_round_ = round_;
  return unvisited_.as<uint64_t>();
}

void* HetDevContext::Stage(size_t bytes) {
  if (stage_.bytes() < bytes) {
    Settle();  // no kernel reads the old one any more
    stage_ = Block();
    stage_ = AllocateLocked(bytes + bytes / 4);
  }
  return stage_.address();
}

// --- the C ABI: the device and its memory

const char* HetDevError(void) { return ErrorOfThread().c_str(); }

int HetDevAbiVersion(void) { return HET_DEV_ABI_VERSION; }

int HetDevDescribe(int device, HetDevInfo* info) {
  return Guard([&] { runtime::Describe(device, info); });
}

int HetDevCreateContext(int device, HetDevContext** context) {
  return Guard([&] {
    *context = nullptr;
    HetDevInfo info;
    runtime::Describe(device, &info);
    *context = new HetDevContext(device);
  });
}

void HetDevDestroyContext(HetDevContext* context) {
  (void)Guard([&] { delete context; });
}

int HetDevMalloc(HetDevContext* context, size_t bytes, void** memory) {
  return Guard([&] {
    *memory = nullptr;
    runtime::Select(context->device(), "unknown");
    *memory = context->Allocate(std::max<size_t>(bytes, 1), "HetDevMalloc").Release();
  });
}

void HetDevFree(HetDevContext* context, void* memory) {
  if (memory == nullptr) return;
  (void)Guard([&] {
    runtime::Select(context->device(), "unknown");
    runtime::Free(memory);
  });
}

int HetDevCopyIn(HetDevContext* context, void* device, const void* host, size_t bytes, HetDevStream stream) {
  return Guard([&] {
    context->Begin(stream);
    void* to = const_cast<void*>(runtime::ForeignAddress(device));
    context->CopyIn(Dev<char>(static_cast<char*>(to)), static_cast<const char*>(host), bytes);
    context->Wait();
  });
}

int HetDevCopyOut(HetDevContext* context, void* host, const void* device, size_t bytes, HetDevStream stream) {
  return Guard([&] {
    context->Begin(stream);
    void* from = const_cast<void*>(runtime::ForeignAddress(device));
    context->CopyOut(static_cast<char*>(host), Dev<char>(static_cast<char*>(from)), bytes);
    context->Wait();
  });
}

int HetDevSynchronize(HetDevContext* context, HetDevStream stream) {
  return Guard([&] {
    context->Begin(stream);
    context->Wait();
  });
}

int HetDevStage(HetDevContext* context, size_t bytes, void** memory) {
  return Guard([&] {
    *memory = nullptr;
    *memory = context->Stage(std::max<size_t>(bytes, 1));
  });
}

void HetDevFailAllocation(HetDevContext* context, uint64_t n) { context->FailAllocation(n); }
