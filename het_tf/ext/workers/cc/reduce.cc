#include "het_tf/ext/workers/cc/reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace het {
namespace {

constexpr size_t kSmall = size_t{1} << 16;  // bytes; a slice of fewer is not worth a second exchange
constexpr size_t kBlock = 1024;             // values: what a sum keeps in the first cache

template <typename T>
const char* TypeName() {
  if (std::is_same_v<T, float>) return "float";
  if (std::is_same_v<T, double>) return "double";
  return std::is_same_v<T, int32_t> ? "int32" : "int64";
}

template <typename T>
Span<const uint8_t> BytesOf(const T* values, size_t count) {
  return {reinterpret_cast<const uint8_t*>(values), count * sizeof(T)};
}

// values = the sum of all parts, where the own part is `values`.
template <typename T>
Status Sum(const Mesh& mesh, const std::vector<Bytes>& parts, bool mean, T* values, size_t count) {
  for (uint32_t rank = 0; rank < mesh.size(); ++rank) {
    if (rank != mesh.rank() && parts[rank].size() != count * sizeof(T)) {
      return Status(Code::kInternal, "rank " + std::to_string(rank) + " sent a part of another size");
    }
  }
  const T share = mean && std::is_floating_point_v<T> ? T{1} / static_cast<T>(mesh.size()) : T{1};
  T sums[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t n = std::min(kBlock, count - begin);
    for (uint32_t rank = 0; rank < mesh.size(); ++rank) {
      const T* part = rank == mesh.rank() ? values : reinterpret_cast<const T*>(parts[rank].data());
      part += begin;
      if (rank == 0) {
        std::copy(part, part + n, sums);
      } else {
        for (size_t i = 0; i < n; ++i) sums[i] += part[i];
      }
    }
    for (size_t i = 0; i < n; ++i) values[begin + i] = sums[i] * share;
  }
  return Status();
}

}  // namespace

template <typename T>
Status SumOverRanks(Mesh* mesh, const std::string& label, bool mean, T* values, size_t count) {
  const size_t ranks = mesh->size();
  const std::string what = std::string(TypeName<T>()) + " [" + std::to_string(count) + "]";
  std::vector<Bytes> parts;
  if (ranks <= 2 || count * sizeof(T) <= kSmall) {
    const std::vector<Span<const uint8_t>> all(ranks, BytesOf(values, count));
    HET_RETURN_IF_ERROR(mesh->Exchange(label, what, all, &parts));
    return Sum(*mesh, parts, mean, values, count);
  }
  const auto begin = [&](size_t rank) { return count * rank / ranks; };
  std::vector<Span<const uint8_t>> slices;
  for (size_t rank = 0; rank < ranks; ++rank) {
    slices.push_back(BytesOf(values + begin(rank), begin(rank + 1) - begin(rank)));
  }
  HET_RETURN_IF_ERROR(mesh->Exchange(label, what, slices, &parts));
  const size_t mine = mesh->rank();
  HET_RETURN_IF_ERROR(Sum(*mesh, parts, mean, values + begin(mine), begin(mine + 1) - begin(mine)));
  const std::vector<Span<const uint8_t>> sums(ranks, slices[mine]);
  HET_RETURN_IF_ERROR(mesh->Exchange(label, what, sums, &parts));
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (rank == mine) continue;
    if (parts[rank].size() != slices[rank].size()) {
      return Status(Code::kInternal, "rank " + std::to_string(rank) + " sent sums of another size");
    }
    if (!parts[rank].empty()) std::memcpy(values + begin(rank), parts[rank].data(), parts[rank].size());
  }
  return Status();
}

Status GatherFromRanks(Mesh* mesh, const std::string& label, const std::string& what,
                       Span<const uint8_t> mine, Bytes* all) {
  std::vector<Bytes> received;
  HET_RETURN_IF_ERROR(
      mesh->Exchange(label, what, std::vector<Span<const uint8_t>>(mesh->size(), mine), &received));
  received[mesh->rank()].assign(mine.begin(), mine.end());
  for (const Bytes& one : received) all->insert(all->end(), one.begin(), one.end());
  return Status();
}

template Status SumOverRanks(Mesh*, const std::string&, bool, float*, size_t);
template Status SumOverRanks(Mesh*, const std::string&, bool, double*, size_t);
template Status SumOverRanks(Mesh*, const std::string&, bool, int32_t*, size_t);
template Status SumOverRanks(Mesh*, const std::string&, bool, int64_t*, size_t);

}  // namespace het
