// Carries out the consequences of answers for a client's caches and reads.
#pragma once

#include "het_tf/core/client/cached_tables.h"
#include "het_tf/core/client/client_config.h"
#include "het_tf/core/client/device_lines.h"
#include "het_tf/core/client/early_reads.h"
#include "het_tf/core/client/exchange.h"
#include "het_tf/core/client/loss_report.h"
#include "het_tf/core/client/push_durability.h"
#include "het_tf/core/client/subscriptions.h"

namespace het {

class ClientAnswers : public Exchange::Listener {
 public:
  // The parts of the client that it calls.
  struct To {
    const ClientConfig* config;
    const CachedTables* tables;
    Subscriptions* subscriptions;
    Exchange* exchange;
    PushDurability* durability;
    LossReport* losses;
    EarlyReads* early;
  };
  explicit ClientAnswers(const To& to) : to_(to) {}
  // Reads for caches on a device, which must live as long; null: there are none.
  void set_devices(DeviceReads* devices) { devices_ = devices; }

  void OnRows(Session* session, const Reply& reply, const PartitionReadPtr& read, bool notifies) override;
  void OnNewIncarnation(Session* session) override;
  void OnNewIdentity(Session* session) override { to_.durability->ForgetQuestion(session->partition()); }
  void OnReloaded(Session* session, const Verdict::Table& table) override;
  void OnGone(Session* session, const Verdict::Table& table) override;
  void OnLost(Session* session, uint64_t lost, uint64_t repaired) override {
    to_.losses->OnLost(session->partition(), lost, repaired);
  }
  void OnReplicas(Session* session, const Transport::Event& event) override;

  // Drops the partition's rows and their updates. `dropped_ticks`: those that its log has dropped. Returns
  // the number of all dropped ticks.
  uint64_t Discard(Session* session, TableCache* cache, uint64_t dropped_ticks);

 private:
  void InvalidateBases(Session* session, TableCache* cache);

  const To to_;
  DeviceReads* devices_ = nullptr;
};

}  // namespace het
