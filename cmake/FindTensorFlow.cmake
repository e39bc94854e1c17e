# Finds the C API of the TensorFlow wheel that Python3_EXECUTABLE would import.
#
#   TensorFlow::CAPI      imported target: C headers and libtensorflow_framework.so.2
#   TensorFlow_VERSION    version of that wheel
#
# Python is asked where the package lies without importing it: that takes milliseconds, not seconds.
execute_process(
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/find_tensorflow.py"
  OUTPUT_VARIABLE _found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(_found)
  list(GET _found 0 TensorFlow_VERSION)
  list(GET _found 1 _package_dir)
  set(TensorFlow_INCLUDE_DIR "${_package_dir}/include")
  set(TensorFlow_LIBRARY "${_package_dir}/libtensorflow_framework.so.2")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TensorFlow
  REQUIRED_VARS TensorFlow_LIBRARY TensorFlow_INCLUDE_DIR
  VERSION_VAR TensorFlow_VERSION
  REASON_FAILURE_MESSAGE "${Python3_EXECUTABLE} has no TensorFlow wheel. Remedy: run 'make setup' and pass -DPython3_EXECUTABLE=$PWD/.venv/bin/python, or build without the plugin (-DHET_BUILD_PLUGIN=OFF)")

if(TensorFlow_FOUND AND NOT TARGET TensorFlow::CAPI)
  add_library(TensorFlow::CAPI SHARED IMPORTED)
  set_target_properties(TensorFlow::CAPI PROPERTIES
    IMPORTED_LOCATION "${TensorFlow_LIBRARY}"
    IMPORTED_SONAME "libtensorflow_framework.so.2"
    INTERFACE_INCLUDE_DIRECTORIES "${TensorFlow_INCLUDE_DIR}")  # imported: -isystem, so -Werror is ours alone
endif()
