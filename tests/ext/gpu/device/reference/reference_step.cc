// A step up to its rows: lookup, install, gather.
#include <algorithm>

#include "het_tf/core/wire/layout.h"
#include "tests/ext/gpu/device/reference/reference.h"

namespace {

using het::Key;
using het::reference::CheckBatch;
using het::reference::Copy;
using het::reference::Fail;
using het::reference::IsPadding;
using het::reference::Keys;
using het::reference::LeavingOfUse;
using het::reference::Readable;
using het::reference::Row;
using het::reference::Rows;

// Writes the rows of positions for which `give` returns true.
template <typename Give>
void CopyOut(const HetDevBatch& batch, HetDevCall* call, Give give) {
  for (uint32_t f = 0; f < batch.n_features; ++f) {
    const HetDevFeature& feature = batch.features[f];
    HetDevTable* table = batch.uses[feature.use].table;
    if (feature.rows == nullptr) continue;
    const size_t dim = table->config.dim;
    for (uint64_t i = 0; i < feature.n; ++i) {
      const Key key = feature.ids[i];
      if (IsPadding(feature, key) || !give(table, key)) continue;
      const Row* row = call->Find(table, key);
      std::copy_n(row->row.begin(), dim, feature.rows + i * dim);
    }
  }
}

int CheckAnswers(const HetDevBatch& batch, const HetDevAnswer* answers, uint32_t n_answers) {
  std::vector<Keys> seen(batch.n_uses);
  for (uint32_t a = 0; a < n_answers; ++a) {
    const HetDevAnswer& answer = answers[a];
    if (answer.use >= batch.n_uses) {
      return Fail(HET_DEV_INVALID, "answer " + std::to_string(a) + ": use is " + std::to_string(answer.use) +
                                       "; there are " + std::to_string(batch.n_uses));
    }
    for (uint64_t i = 0; i < answer.n; ++i) {
      const std::string key = std::to_string(answer.keys[i]);
      if (answer.rows == nullptr) continue;
      if (answer.bases[i] < 0) {
        return Fail(HET_DEV_INVALID, "the base of key " + key + " is " + std::to_string(answer.bases[i]) +
                                         "; it must be 0 or more");
      }
      if (!seen[answer.use].insert(answer.keys[i]).second) {
        return Fail(HET_DEV_INVALID, "key " + key + " is answered twice; give each key of a use once");
      }
    }
  }
  return HET_DEV_OK;
}

struct Given {
  const float* row;
  int64_t base;
  bool admit;
  bool subscribed;
};

void Renew(const HetDevTable& table, const Given& given, Row* row) {
  row->row.assign(given.row, given.row + table.config.row_floats);
  if (row->ticks > 0) {
    table.schema->optimizer().MergeInto(row->update.data(), row->ticks, row->row.data());
  }
  row->base = given.base;
  row->copy = given.subscribed || row->copy == Copy::kSubscribed ? Copy::kSubscribed : Copy::kChecked;
}

// Whether the store must be asked about a valid row (the rule of core/cache/pull_rule.h).
bool Asks(const HetDevUse& use, Key key, Copy copy) {
  const HetDevTableConfig& config = use.table->config;
  const uint32_t partition = het::Layout(config.partitions, config.hash_seed).OfKey(config.table, key);
  const bool holds = use.trusted != nullptr && use.trusted[partition] != 0;
  if (copy == Copy::kSubscribed && holds) return false;
  return copy == Copy::kMoved || use.check;
}

// Lets an absent row enter. Returns false if its bucket has only pinned rows and rows in `answered`.
// *left: the key of a subscribed row that was evicted without an update.
bool Enter(const HetDevUse& use, Key key, const Given& given, const Keys& answered, LeavingOfUse* victims,
           std::vector<Key>* left) {
  HetDevTable* table = use.table;
  Rows& bucket = table->BucketOf(key);
  if (bucket.size() == table->bucket_rows) {
    const Key* victim = table->Victim(bucket, use.pinned_from, answered);
    if (victim == nullptr) return false;
    const Row& row = bucket.at(*victim);
    if (row.ticks > 0) {
      (*victims)[*victim] = row.Update();
    } else if (row.copy == Copy::kSubscribed) {
      left->push_back(*victim);
    }
    bucket.erase(Key(*victim));
    ++table->evictions;
  }
  Row& row = bucket[key];
  row.update.assign(table->config.row_floats, 0.0f);
  Renew(*table, given, &row);
  table->Use(&row, use.stamp);
  ++table->inserts;
  return true;
}

}  // namespace

Row* HetDevCall::Find(HetDevTable* table, Key key, bool* of_call) {
  Row* row = table->Find(key);
  if (of_call != nullptr) *of_call = row == nullptr;
  if (row != nullptr) return row;
  Rows& rows = own[table];
  const auto it = rows.find(key);
  return it == rows.end() ? nullptr : &it->second;
}

int HetDevCreateCall(HetDevContext* context, HetDevCall** call) {
  *call = new HetDevCall();
  (*call)->context = context;
  return HET_DEV_OK;
}

void HetDevDestroyCall(HetDevContext* context, HetDevCall* call) {
  if (call != nullptr) context->sums.reset();
  delete call;
}

void HetDevResetCall(HetDevContext* context, HetDevCall* call) {
  if (context->sums && context->sums->call == call) context->sums.reset();
  call->own.clear();
  call->left_out.clear();
  call->ids.clear();
}

int HetDevLookup(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch, int training,
                 HetDevStream, HetDevWanted* wanted) {
  if (const int bad = CheckBatch(context, call, batch, true)) return bad;
  if (!context->Begin()) return context->OutOfMemory();
  call->left_out.clear();
  call->ids.clear();
  for (uint32_t f = 0; f < batch->n_features; ++f) {
    const HetDevFeature& feature = batch->features[f];
    call->ids.emplace_back(feature.ids, feature.ids + feature.n);
  }
  const Readable readable(*call, *batch);
  batch = &readable.batch;
  context->wanted = {};
  const std::vector<Keys> keys = het::reference::KeysOf(*batch, nullptr);
  for (uint32_t u = 0; u < batch->n_uses; ++u) {
    const HetDevUse& use = batch->uses[u];
    uint64_t hits = 0;
    for (Key key : keys[u]) {
      bool of_call = false;
      Row* row = call->Find(use.table, key, &of_call);
      hits += row != nullptr;
      if (row != nullptr && training && !of_call) use.table->Use(row, use.stamp);
      const bool fetched = row != nullptr && (row->invalid() || row->copy == Copy::kMoved);
      if (row != nullptr && !row->invalid() && !Asks(use, key, row->copy)) continue;
      context->wanted.Add(u, key, row == nullptr ? HET_DEV_NO_BASE : fetched ? HET_DEV_OLD_BASE : row->base);
      call->left_out[use.table].insert(key);
    }
    use.table->Age();
    context->wanted.reads.push_back(keys[u].size());
    context->wanted.hits.push_back(hits);
  }
  for (uint32_t f = 0; f < batch->n_features; ++f) {
    const HetDevFeature& feature = batch->features[f];
    const size_t dim = batch->uses[feature.use].table->config.dim;
    for (uint64_t i = 0; i < feature.n && feature.rows != nullptr; ++i) {
      if (IsPadding(feature, feature.ids[i])) std::fill_n(feature.rows + i * dim, dim, 0.0f);
    }
  }
  CopyOut(*batch, call, [&](HetDevTable* table, Key key) { return call->left_out[table].count(key) == 0; });
  context->wanted.Show(wanted);
  return HET_DEV_OK;
}

int HetDevInstall(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch,
                  const HetDevAnswer* answers, uint32_t n_answers, HetDevStream, HetDevExport* victims) {
  if (const int bad = CheckBatch(context, call, batch, false)) return bad;
  if (const int bad = CheckAnswers(*batch, answers, n_answers)) return bad;
  if (!context->Begin()) return context->OutOfMemory();
  std::vector<std::map<Key, Given, het::reference::AsUnsigned>> absent(batch->n_uses);
  std::vector<Keys> answered(batch->n_uses);
  for (uint32_t a = 0; a < n_answers; ++a) {
    const HetDevAnswer& answer = answers[a];
    HetDevTable* table = batch->uses[answer.use].table;
    for (uint64_t i = 0; i < answer.n; ++i) {
      const bool subscribed = answer.subscribed != nullptr && answer.subscribed[i] != 0;
      if (answer.rows == nullptr) continue;
      bool of_call = false;
      Row* row = call->Find(table, answer.keys[i], &of_call);
      const Given given{answer.rows + i * table->config.row_floats, answer.bases[i], answer.admit[i] != 0,
                        subscribed && !of_call};
      answered[answer.use].insert(answer.keys[i]);
      if (row != nullptr) {
        Renew(*table, given, row);
      } else {
        absent[answer.use][answer.keys[i]] = {given.row, given.base, given.admit, subscribed};
      }
      call->left_out[table].insert(answer.keys[i]);
    }
  }
  std::vector<LeavingOfUse> leaving(batch->n_uses);
  for (uint32_t u = 0; u < batch->n_uses; ++u) {
    const HetDevUse& use = batch->uses[u];
    for (auto& [key, given] : absent[u]) {
      if (given.admit && Enter(use, key, given, answered[u], &leaving[u], &context->leaving.left_keys))
        continue;
      given.subscribed = false;
      Row& row = call->own[use.table][key];
      row.update.assign(use.table->config.row_floats, 0.0f);
      Renew(*use.table, given, &row);
    }
    context->leaving.left_uses.resize(context->leaving.left_keys.size(), u);
    use.table->Age();
  }
  for (uint32_t a = 0; a < n_answers; ++a) {
    const HetDevAnswer& answer = answers[a];
    for (uint64_t i = 0; i < answer.n && answer.rows == nullptr && answer.subscribed != nullptr; ++i) {
      Row* const kept = batch->uses[answer.use].table->Find(answer.keys[i]);
      if (answer.subscribed[i] != 0 && kept != nullptr && !kept->invalid()) kept->copy = Copy::kSubscribed;
    }
  }
  context->leaving.Fill(leaving, victims);
  return HET_DEV_OK;
}

int HetDevGather(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch, HetDevStream) {
  if (const int bad = CheckBatch(context, call, batch, false)) return bad;
  const Readable readable(*call, *batch);
  batch = &readable.batch;
  if (!context->Begin()) return context->OutOfMemory();
  for (uint32_t f = 0; f < batch->n_features; ++f) {
    const HetDevFeature& feature = batch->features[f];
    HetDevTable* table = batch->uses[feature.use].table;
    for (uint64_t i = 0; i < feature.n; ++i) {
      const Key key = feature.ids[i];
      if (IsPadding(feature, key) || call->Find(table, key) != nullptr) continue;
      return Fail(HET_DEV_INVALID, "table '" + table->name + "': key " + std::to_string(key) +
                                       " is not here; install its row before HetDevGather");
    }
  }
  CopyOut(*batch, call, [&](HetDevTable* table, Key key) { return call->left_out[table].count(key) != 0; });
  return HET_DEV_OK;
}
