#include "het_tf/core/base/parallel.h"

namespace het {
namespace {

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Polls `ready` for some twenty microseconds.
template <typename Ready>
void Spin(Ready ready) {
  for (int i = 0; i < 500 && !ready(); ++i) Pause();
}

}  // namespace

ThreadPool::ThreadPool(size_t threads) : shares_(threads) {
  for (size_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { Work(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Drain(size_t self, const std::function<void(size_t)>& task) {
  for (size_t k = 0; k < shares_.size(); ++k) {
    Share& share = shares_[(self + k) % shares_.size()];
    for (size_t i = share.next.fetch_add(1); i < share.end; i = share.next.fetch_add(1)) task(i);
  }
}

void ThreadPool::For(size_t tasks, const std::function<void(size_t)>& task) {
  std::unique_lock<std::mutex> loop(loop_mutex_, std::defer_lock);
  if (tasks <= 1 || workers_.empty() || !loop.try_lock()) {
    for (size_t i = 0; i < tasks; ++i) task(i);
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    task_ = &task;
    for (size_t k = 0; k < shares_.size(); ++k) {
      shares_[k].next.store(k * tasks / shares_.size());
      shares_[k].end = (k + 1) * tasks / shares_.size();
    }
    loop_.fetch_add(1);
  }
  wake_.notify_all();
  Drain(0, task);
  // task_ = null tells workers that wake up late that no task is left.
  std::unique_lock<std::mutex> lock(mutex_);
  task_ = nullptr;
  if (busy_.load() == 0) return;
  lock.unlock();
  Spin([this] { return busy_.load() == 0; });
  lock.lock();
  done_.wait(lock, [this] { return busy_.load() == 0; });
}

void ThreadPool::Work(size_t self) {
  uint64_t seen = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    lock.unlock();
    Spin([&] { return stop_.load() || loop_.load() != seen; });
    lock.lock();
    wake_.wait(lock, [&] { return stop_.load() || (loop_.load() != seen && task_ != nullptr); });
    if (stop_.load()) return;
    seen = loop_.load();
    const std::function<void(size_t)>* task = task_;
    busy_.fetch_add(1);
    lock.unlock();
    Drain(self, *task);
    lock.lock();
    if (busy_.fetch_sub(1) == 1) done_.notify_one();
  }
}

}  // namespace het
