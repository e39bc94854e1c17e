// The types that DeviceTables uses inside one call.
#pragma once

#include <string>

#include "het_tf/ext/gpu/cc/device_tables.h"

namespace het {

// A call as the library's structs. uses[t] is table t of the call.
struct DeviceTables::Batch {
  Vector<DeviceTable*> tables;
  Vector<HetDevUse> uses;
  Vector<HetDevFeature> features;
  HetDevBatch batch = {};
  bool asks = false;        // it has to ask which rows of some table have moved
  Vector<uint8_t> trusted;  // of each table and partition: HetDevUse::trusted
  size_t ids = 0;
  size_t floats = 0;  // of all rows
  HetDevStream stream = nullptr;
  const char* doing = "";  // "a lookup"

  // "a lookup of tables 'a', 'b'"
  std::string Subject() const;
};

// Wanted rows in order of table, partition and key; each array has one element a row.
struct DeviceTables::Fetched {
  struct Row {
    Key key;
    Clock base;
  };

  // Copies and sorts the wanted rows. Throws std::bad_alloc.
  void Sort(const HetDevWanted& wanted, Span<DeviceTable* const> tables, const PartitionId& store);
  // Lists the rows that came, table by table without gaps, and then those that stay and are subscribed.
  // `floats`: all rows, in order. Throws std::bad_alloc.
  void Pack(Span<DeviceTable* const> tables, uint32_t partitions, float* floats);

  Vector<uint32_t> group_of;  // in the device's order; group = use * partitions + partition
  Vector<size_t> begin;       // of each group, and the end
  Vector<size_t> at;
  Vector<Row> rows;
  Vector<Key> keys;
  Vector<Clock> bases;
  Vector<Clock> clocks;
  Vector<uint8_t> came;
  Vector<uint8_t> admit;
  Vector<uint8_t> subscribed;
  Vector<Key> stay;     // keys of rows that did not come, and are subscribed
  Vector<uint8_t> are;  // 1 for each of these
  Vector<HetDevAnswer> answers;
};

}  // namespace het
