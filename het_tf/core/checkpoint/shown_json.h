// JSON of a file that may be hostile, as an error message shows it: its beginning.
#ifndef HET_TF_CORE_CHECKPOINT_SHOWN_JSON_H_
#define HET_TF_CORE_CHECKPOINT_SHOWN_JSON_H_

#include <nlohmann/json.hpp>
#include <string>

namespace het {

inline std::string ShownJson(const nlohmann::json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true).substr(0, 200);
}

}  // namespace het

#endif  // HET_TF_CORE_CHECKPOINT_SHOWN_JSON_H_
