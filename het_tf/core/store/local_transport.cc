#include "het_tf/core/store/local_transport.h"

namespace het {

void LocalTransport::Send(OutFrame frame) {
  Event event;
  event.partition = frame.parts[0].partition;
  try {
    service_->Handle(frame.view(), &event.bytes);
  } catch (const std::bad_alloc&) {
    event.kind = Event::kRefused;
    event.reason = kStoreOutOfMemory;
    for (const PartRef& part : frame.parts) {
      event.partition = part.partition;
      event.request_id = part.request_id;
      ready_.push_back(event);
    }
    return;
  }
  ready_.push_back(std::move(event));
}

bool LocalTransport::Poll(double, std::vector<Event>* events) {
  const bool any = !ready_.empty();
  for (Event& event : ready_) events->push_back(std::move(event));
  ready_.clear();
  return any;
}

}  // namespace het
