#include "het_tf/capi/xla.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "het_tf/capi/steps.h"
#include "het_tf/core/base/answer.h"
#include "het_tf/core/engine/call_spec.h"

namespace het::xla {
namespace {

constexpr size_t kMaxCalls = 1024;

Status Misfit(const std::string& what) {
  return InvalidArgument("het_tf: a program of XLA gives " + what +
                         "; trace it again with this version of het_tf");
}

// The call of these specs.
Result<std::shared_ptr<CallSpec>> CallOf(std::string_view specs) {
  static auto& mutex = *new std::mutex;  // never deleted: XLA's threads may outlive static objects
  static auto& calls = *new std::map<std::string, std::shared_ptr<CallSpec>, std::less<>>;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = calls.find(specs);
  if (found != calls.end()) return found->second;
  HET_ASSIGN_OR_RETURN(std::unique_ptr<CallSpec> made, CallSpec::Create(std::string(specs)));
  if (calls.size() >= kMaxCalls) calls.clear();  // a call that runs holds its own
  return calls.emplace(specs, std::move(made)).first->second;
}

template <typename T>
const T* Find(const Attributes& attributes, std::string_view name, AttributeKind kind) {
  for (int64_t i = 0; i < attributes.count; ++i) {
    const std::string_view here(attributes.names[i]->begin, attributes.names[i]->length);
    if (here == name && attributes.kinds[i] == kind) return static_cast<const T*>(attributes.items[i]);
  }
  return nullptr;
}

using List = std::vector<const Buffer*>;

// All but tokens.
List ListOf(const Buffers& buffers) {
  List found;
  for (int64_t i = 0; i < buffers.count; ++i) {
    const auto* buffer = static_cast<const Buffer*>(buffers.items[i]);
    if (buffers.kinds[i] == kIsBuffer && buffer->type != kToken) found.push_back(buffer);
  }
  return found;
}

bool Is(const Buffer& buffer, Type type, const std::vector<int64_t>& dims) {
  return buffer.type == type && std::equal(dims.begin(), dims.end(), buffer.dims, buffer.dims + buffer.rank);
}

// The arrays of a call as steps.h takes them.
struct Arrays {
  std::vector<const int64_t*> ids;
  std::vector<size_t> counts;
  std::vector<const bool*> masks;  // none, or of all features
  std::vector<float*> rows;
  std::vector<std::vector<int64_t>> wide;  // of ids of 32 bits

  const bool* const* masks_or_null() const { return masks.empty() ? nullptr : masks.data(); }
  // `inputs`: ids, then masks. `rows`: rows or gradients.
  Status Parse(const CallSpec& spec, Span<const Buffer* const> inputs, Span<const Buffer* const> rows_of);
};

Status Arrays::Parse(const CallSpec& spec, Span<const Buffer* const> inputs,
                     Span<const Buffer* const> rows_of) {
  const size_t features = spec.features().size();
  for (size_t f = 0; f < features; ++f) {
    const Buffer& given = *inputs[f];
    std::vector<int64_t> dims(given.dims, given.dims + given.rank);
    size_t count = 1;
    for (const int64_t dim : dims) count *= static_cast<size_t>(dim);
    counts.push_back(count);
    if (given.type == kS64) {
      ids.push_back(static_cast<const int64_t*>(given.data));
    } else if (given.type == kS32) {
      const auto* narrow = static_cast<const int32_t*>(given.data);
      ids.push_back(wide.emplace_back(narrow, narrow + count).data());
    } else {
      return Misfit("ids of feature '" + spec.features()[f].name + "' whose type is " +
                    std::to_string(given.type));
    }
    if (inputs.size() > features) {
      if (!Is(*inputs[features + f], kPred, dims)) {
        return Misfit("a mask of feature '" + spec.features()[f].name + "' of another type or shape");
      }
      masks.push_back(static_cast<const bool*>(inputs[features + f]->data));
    }
    dims.push_back(static_cast<int64_t>(spec.schemas()[spec.features()[f].table]->dim()));
    if (!Is(*rows_of[f], kF32, dims)) {
      return Misfit("rows of feature '" + spec.features()[f].name + "' of another type or shape");
    }
    rows.push_back(static_cast<float*>(rows_of[f]->data));
  }
  return Status();
}

Status StatusOf(int code) { return Status(static_cast<Code>(code), std::string(HetText())); }

Status Lookup(CallSpec* spec, const Frame& frame) {
  const List arguments = ListOf(frame.arguments), results = ListOf(frame.results);
  const size_t features = spec->features().size();
  const bool training = results.size() == features + 1;
  if ((arguments.size() != features && arguments.size() != 2 * features) ||
      (results.size() != features && !training) || (training && !Is(*results[features], kU32, {2}))) {
    return Misfit("other buffers to a lookup than its layer has");
  }
  Arrays arrays;
  Status parsed = arrays.Parse(*spec, {arguments.data(), arguments.size()}, {results.data(), features});
  if (!parsed.ok()) return parsed;
  uint64_t token = 0;
  const Status done =
      StatusOf(HetCallLookup(spec, arrays.ids.data(), arrays.counts.data(), arrays.masks_or_null(),
                             arrays.rows.data(), training ? &token : nullptr));
  if (training) {
    auto* const halves = static_cast<uint32_t*>(results[features]->data);
    halves[0] = static_cast<uint32_t>(token >> 32);
    halves[1] = static_cast<uint32_t>(token);
  }
  return done;
}

Status Keep(CallSpec* spec, const Frame& frame) {
  const List arguments = ListOf(frame.arguments), results = ListOf(frame.results);
  const size_t features = spec->features().size();
  const auto slots = static_cast<int64_t>(spec->ticket_rows());
  const auto* const worker = Find<Scalar>(frame.attributes, "worker", kScalar);
  if ((arguments.size() != 1 + 2 * features && arguments.size() != 1 + 3 * features) || results.size() != 1 ||
      !Is(*arguments[0], kU32, {2}) || !Is(*results[0], kF32, {slots, 2}) || worker == nullptr ||
      worker->type != kS64) {
    return Misfit("other buffers to a gradient than its layer has");
  }
  Arrays arrays;
  const Span<const Buffer* const> rest(arguments.data() + 1, arguments.size() - 1);
  Status parsed =
      arrays.Parse(*spec, rest.subspan(features, rest.size() - features), rest.subspan(0, features));
  if (!parsed.ok()) return parsed;
  const auto* const halves = static_cast<const uint32_t*>(arguments[0]->data);
  return StatusOf(HetCallKeep(spec, arrays.ids.data(), arrays.counts.data(), arrays.masks_or_null(),
                              arrays.rows.data(), uint64_t{halves[0]} << 32 | halves[1],
                              *static_cast<const int64_t*>(worker->value),
                              static_cast<float*>(results[0]->data)));
}

Status Apply(CallSpec* spec, const Frame& frame) {
  const List arguments = ListOf(frame.arguments);
  if (arguments.size() != 2 || !Is(*arguments[0], kF32, {KeptGradients::kSlots, 2}) ||
      !Is(*arguments[1], kF32, {static_cast<int64_t>(spec->tables().size())})) {
    return Misfit("other buffers to an update than its variable has");
  }
  return StatusOf(HetCallApply(spec, static_cast<const float*>(arguments[0]->data),
                               static_cast<const float*>(arguments[1]->data), 1));
}

// Runs body(call, frame) -> Status.
template <typename Body>
Error* Run(Frame* frame, const Body& body) {
  for (Extension* extension = frame->extensions; extension != nullptr; extension = extension->next) {
    if (extension->kind != kIsMetadata) continue;  // else XLA asks for the version
    Metadata& metadata = *reinterpret_cast<MetadataExtension*>(extension)->metadata;
    metadata.version.major = kMajor;
    metadata.version.minor = kMinor;
    metadata.traits = 0;
    return nullptr;
  }
  if (frame->stage != kStageOfExecution) return nullptr;
  const int code = Answer([&]() -> Status {
    const auto* const specs = Find<Text>(frame->attributes, "specs", kString);
    if (specs == nullptr) return Misfit("no specs");
    HET_ASSIGN_OR_RETURN(const auto call, CallOf({specs->begin, specs->length}));
    return body(call.get(), *frame);
  });
  if (code == 0) return nullptr;
  static thread_local std::string text;
  text = std::string(HetText()) +
         ". Keras' fit loses its dense weights with the step: load them (load_weights, "
         "het_tf.checkpoint.restore)";
  ErrorArguments arguments{sizeof(ErrorArguments), nullptr, text.c_str(), code};
  return frame->api->make_error(&arguments);
}

}  // namespace
}  // namespace het::xla

het::xla::Error* HetXlaLookup(het::xla::Frame* frame) { return het::xla::Run(frame, het::xla::Lookup); }

het::xla::Error* HetXlaKeep(het::xla::Frame* frame) { return het::xla::Run(frame, het::xla::Keep); }

het::xla::Error* HetXlaApply(het::xla::Frame* frame) { return het::xla::Run(frame, het::xla::Apply); }
