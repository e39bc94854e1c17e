# het_redis_module: het.so, with a core that no sanitizer has touched.
set(module_core het_core)
if(HET_SANITIZE)
  set(module_core het_core_plain)
  add_library(het_core_plain STATIC ${core_sources})
  het_unity(het_core_plain)
  target_include_directories(het_core_plain PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}")
  target_link_libraries(het_core_plain PUBLIC het_flags Boost::headers_only nlohmann_json::headers
    xxHash::headers Threads::Threads)
endif()
file(GLOB module_sources CONFIGURE_DEPENDS het_tf/ext/ps/module/*.cc)
# Both sides know how partitions' keys are named.
add_library(het_redis_module MODULE ${module_sources} het_tf/ext/ps/keyspace.cc)
target_link_libraries(het_redis_module PRIVATE ${module_core})
set_target_properties(het_redis_module PROPERTIES PREFIX "" OUTPUT_NAME het UNITY_BUILD OFF
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}"
  LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/cmake/module.map")
target_link_options(het_redis_module PRIVATE -static-libstdc++ -static-libgcc -Wl,--no-undefined
  -Wl,--gc-sections "-Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cmake/module.map")
