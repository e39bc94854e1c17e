// A pointer and a length: C++17 has no std::span.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace het {

// Views `size()` consecutive T that someone else owns. Cheap to copy; dangles when the owner reallocates.
template <typename T>
class Span {
 public:
  constexpr Span() = default;
  constexpr Span(T* data, size_t size) : data_(data), size_(size) {}

  template <typename Container, typename = std::enable_if_t<
                                    std::is_convertible_v<decltype(std::declval<Container&>().data()), T*>>>
  constexpr Span(Container& c) : data_(c.data()), size_(c.size()) {}  // NOLINT: implicit by design

  constexpr T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T& operator[](size_t i) const { return data_[i]; }
  constexpr T* begin() const { return data_; }
  constexpr T* end() const { return data_ + size_; }
  constexpr Span subspan(size_t from, size_t count) const { return Span(data_ + from, count); }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace het
