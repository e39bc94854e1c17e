# Finds header-only Boost >= 1.81 (boost::unordered_flat_map): first the PyPI package `boost-headers`
# of Python3_EXECUTABLE, then the system's.
#
#   Boost::headers_only   imported interface target

execute_process(
  COMMAND "${Python3_EXECUTABLE}" -c
          "import importlib.metadata as m; print(m.distribution('boost-headers').locate_file('boost_headers'))"
  OUTPUT_VARIABLE _python_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)

find_path(BoostHeaders_INCLUDE_DIR boost/unordered/unordered_flat_map.hpp
  HINTS "${_python_dir}/include" "${_python_dir}" NO_CACHE)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(BoostHeaders
  REQUIRED_VARS BoostHeaders_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "There are no Boost >= 1.81 headers. Remedy: ${Python3_EXECUTABLE} -m pip install boost-headers==1.85.0.post1")

if(BoostHeaders_FOUND AND NOT TARGET Boost::headers_only)
  add_library(Boost::headers_only INTERFACE IMPORTED)
  target_include_directories(Boost::headers_only SYSTEM INTERFACE "${BoostHeaders_INCLUDE_DIR}")
endif()
