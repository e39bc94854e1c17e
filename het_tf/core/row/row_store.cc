#include "het_tf/core/row/row_store.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "het_tf/core/base/huge_pages.h"

namespace het {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr uint32_t kFirstRows = 8;
constexpr size_t kMaxBlockChunks = 64;

uint32_t ChunkShift(size_t row_bytes) {
  uint32_t shift = 4;
  while (shift < 16 && (size_t{2} << shift) * row_bytes <= kChunkBytes) ++shift;
  return shift;
}

uint64_t NextGeneration() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// Prefetch distance in keys.
constexpr size_t kBucketsAhead = 24;

}  // namespace

RowStore::RowStore(size_t row_floats, uint64_t hash_seed)
    : row_floats_(row_floats),
      hash_seed_(hash_seed),
      shift_(ChunkShift(row_floats * sizeof(float) + sizeof(RowMeta))),
      mask_((uint32_t{1} << shift_) - 1),
      generation_(NextGeneration()) {}

RowStore::~RowStore() {
  for (const Block& block : blocks_) FreeBlock(block);
}

RowStore::Block RowStore::MakeBlock(size_t rows) const {
  Block block;
  block.meta = static_cast<RowMeta*>(AllocateBlock(rows * sizeof(RowMeta)));
  try {
    block.data = static_cast<float*>(AllocateBlock(rows * row_floats_ * sizeof(float)));
  } catch (...) {
    ReleaseBlock(block.meta, rows * sizeof(RowMeta));
    throw;
  }
  block.rows = rows;
  AdviseHugePages(block.meta, rows * sizeof(RowMeta));
  AdviseHugePages(block.data, rows * row_floats_ * sizeof(float));
  return block;
}

void RowStore::FreeBlock(const Block& block) const {
  ReleaseBlock(block.meta, block.rows * sizeof(RowMeta));
  ReleaseBlock(block.data, block.rows * row_floats_ * sizeof(float));
}

size_t RowStore::bytes() const {
  return index_.bytes() + space_ * (sizeof(RowMeta) + row_floats_ * sizeof(float)) +
         chunks_.capacity() * sizeof(Chunk) + blocks_.capacity() * sizeof(Block);
}

void RowStore::FindBatch(const Key* keys, const uint64_t* hashes, size_t n, uint32_t* rows,
                         size_t floats) const {
  index_.With([&](auto of) {
    for (size_t i = 0; i < std::min(n, kBucketsAhead); ++i) of(hashes[i]).Prefetch(hashes[i]);
    auto prefetch_row = [&](size_t i) {
      if (i >= n) return;
      rows[i] = of(hashes[i]).Candidate(hashes[i]);
      if (rows[i] != kNoRow) PrefetchRow(rows[i], floats);
    };
    for (size_t i = 0; i < kRowsAhead; ++i) prefetch_row(i);
    for (size_t i = 0; i < n; ++i) {
      if (i + kBucketsAhead < n) of(hashes[i + kBucketsAhead]).Prefetch(hashes[i + kBucketsAhead]);
      prefetch_row(i + kRowsAhead);
      if (rows[i] != kNoRow && meta(rows[i]).key == keys[i]) continue;
      rows[i] = of(hashes[i]).Find(hashes[i], [&](uint32_t row) { return meta(row).key == keys[i]; });
    }
  });
}

void RowStore::AddSpace() {
  const uint32_t full = mask_ + 1;
  if (chunks_.size() == 1 && chunks_[0].rows < full) {
    const Block larger = MakeBlock(std::min(full, chunks_[0].rows * 2));
    std::memcpy(larger.meta, chunks_[0].meta, end_ * sizeof(RowMeta));
    std::memcpy(larger.data, chunks_[0].data, end_ * row_floats_ * sizeof(float));
    FreeBlock(blocks_[0]);
    blocks_[0] = larger;
    chunks_[0] = {larger.meta, larger.data, static_cast<uint32_t>(larger.rows)};
    space_ = chunks_[0].rows;
    return;
  }
  AddChunks(std::clamp<size_t>(chunks_.size() / 8, 1, kMaxBlockChunks),
            chunks_.empty() ? std::min(full, kFirstRows) : full);
}

void RowStore::AddChunks(size_t chunks, uint32_t rows) {
  if (space_ + chunks * rows >= kNoRow) throw std::bad_alloc();
  if (chunks_.size() + chunks > chunks_.capacity()) {
    chunks_.reserve(std::max(chunks_.size() + chunks, 2 * chunks_.size()));
  }
  if (blocks_.size() == blocks_.capacity()) blocks_.reserve(std::max<size_t>(1, 2 * blocks_.size()));
  const Block block = MakeBlock(chunks * rows);
  blocks_.push_back(block);
  for (size_t i = 0; i < chunks; ++i) {
    chunks_.push_back({block.meta + i * rows, block.data + i * rows * row_floats_, rows});
  }
  space_ += static_cast<uint32_t>(block.rows);
}

uint32_t RowStore::Insert(Key key, uint64_t hash) {
  index_.Reserve([&](uint32_t row) { return Hash(meta(row).key); }, hash);
  uint32_t row = free_head_;
  if (row != kNoRow) {
    free_head_ = static_cast<uint32_t>(meta(row).key);
  } else {
    if (end_ == space_) AddSpace();
    row = end_++;
  }
  meta(row) = RowMeta{key, 0, 0, 0, kLive};
  index_.Insert(hash, row);
  return row;
}

void RowStore::Reserve(size_t more_rows) {
  index_.ReserveMany([&](uint32_t row) { return Hash(meta(row).key); }, more_rows);
  const size_t full = size_t{mask_} + 1;
  const size_t unused = space_ - end_;
  // A first chunk that is still growing is moved when it does; then all the more behind it stays in place.
  if (more_rows < full || more_rows <= unused) return;
  while (!chunks_.empty() && chunks_[0].rows < full) AddSpace();
  const size_t wanted = more_rows > space_ - end_ ? more_rows - (space_ - end_) : 0;
  if (wanted > 0) AddChunks((wanted + full - 1) / full, static_cast<uint32_t>(full));
}

void RowStore::Erase(uint32_t row) {
  RowMeta& m = meta(row);
  index_.Erase(Hash(m.key), row);
  m.flags = 0;
  m.key = free_head_;
  free_head_ = row;
  generation_ = NextGeneration();
}

void RowStore::Clear() {
  for (const Block& block : blocks_) FreeBlock(block);
  blocks_.clear();
  chunks_.clear();
  index_.Clear();
  free_head_ = kNoRow;
  end_ = 0;
  space_ = 0;
  generation_ = NextGeneration();
}

}  // namespace het
