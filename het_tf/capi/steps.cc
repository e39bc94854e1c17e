#include "het_tf/capi/steps.h"

#include <nlohmann/json.hpp>

#include "het_tf/capi/kept_ids.h"
#include "het_tf/core/base/answer.h"
#include "het_tf/core/base/interrupt.h"

namespace het {
namespace {

// Runs body(spec, resolved) -> Status.
template <typename Body>
int WithCall(void* call, const Body& body) {
  return Answer([&]() -> Status {
    CallSpec& spec = *static_cast<CallSpec*>(call);
    HET_ASSIGN_OR_RETURN(const CallSpec::Resolved resolved, spec.Resolve());
    const Interrupts interrupts(Interrupts::By::kFunction, resolved.engine->remote());
    return body(spec, resolved);
  });
}

KeptCall KeptCallOf(const CallSpec& spec, const CallSpec::Resolved& resolved, const float* tickets) {
  KeptCall kept;
  kept.variable = spec.variables()[0];
  kept.tables = *resolved.tables;
  kept.tickets = {tickets, size_t{2} * KeptGradients::kSlots};
  return kept;
}

}  // namespace
}  // namespace het

int HetCallOpen(const char* specs, void** call) {
  return het::Answer([&]() -> het::Status {
    HET_ASSIGN_OR_RETURN(std::unique_ptr<het::CallSpec> spec, het::CallSpec::Create(specs));
    het::Text() = nlohmann::json({{"features", spec->features().size()},
                                  {"tables", spec->tables().size()},
                                  {"tickets", 2 * spec->ticket_rows()}})
                      .dump();
    *call = spec.release();
    return het::Status();
  });
}

int HetCallLookup(void* call, const int64_t* const* ids, const size_t* counts, const bool* const* masks,
                  float* const* rows, uint64_t* token) {
  return het::WithCall(call, [&](const het::CallSpec& spec, const het::CallSpec::Resolved& resolved) {
    const het::KeptIds kept(spec, ids, counts, masks);
    het::Status done = het::CheckIds(spec, kept.features());
    if (!done.ok()) return done;
    done = resolved.engine->steps().Lookup({*resolved.tables, kept.features(), spec.signature()},
                                           {rows, kept.features().size()}, token);
    if (done.ok()) kept.Spread(rows);
    return done;
  });
}

int HetCallKeep(void* call, const int64_t* const* ids, const size_t* counts, const bool* const* masks,
                const float* const* gradients, uint64_t token, int64_t worker, float* tickets) {
  return het::WithCall(call, [&](const het::CallSpec& spec, const het::CallSpec::Resolved& resolved) {
    het::KeptIds kept(spec, ids, counts, masks);
    const std::vector<const float*> chosen = kept.Chosen(gradients);
    het::ApplyArgs args;
    args.token = token;
    args.gradients = chosen;
    return resolved.engine->steps().Keep({*resolved.tables, kept.features(), spec.signature()}, args,
                                         spec.variables(), static_cast<uint32_t>(worker), nullptr, tickets);
  });
}

int HetCallNorm(void* call, const float* tickets, double order, double* norm) {
  return het::WithCall(
      call, [&](const het::CallSpec& spec, const het::CallSpec::Resolved& resolved) -> het::Status {
        HET_ASSIGN_OR_RETURN(
            *norm, resolved.engine->steps().NormOfKept(het::KeptCallOf(spec, resolved, tickets), order));
        return het::Status();
      });
}

int HetCallApply(void* call, const float* tickets, const float* rates, float scale) {
  return het::WithCall(call, [&](const het::CallSpec& spec, const het::CallSpec::Resolved& resolved) {
    het::KeptCall kept = het::KeptCallOf(spec, resolved, tickets);
    kept.learning_rates = {rates, resolved.tables->size()};
    kept.scale = scale;
    return resolved.engine->steps().ApplyKept(kept);
  });
}

int HetCallApplies(void* call, int64_t* counts) {
  return het::WithCall(call, [&](const het::CallSpec&, const het::CallSpec::Resolved& resolved) {
    for (const het::TablePtr& table : *resolved.tables) *counts++ = table->applies.load();
    return het::Status();
  });
}

void HetCallClose(void* call) { delete static_cast<het::CallSpec*>(call); }
