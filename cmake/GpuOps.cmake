# libhet_tf_gpu.so: the DEVICE_GPU kernels of our ops (het_tf/kernels/gpu). It is written against TensorFlow's
# C++ API, so unlike libhet_tf.so it fits the one TensorFlow that it was built for. It needs no CUDA: what works
# the GPU is a library that libhet_tf.so loads at run time.
#
# The flags of that TensorFlow's C++ ABI come from itself; it is imported for them once a build directory.
set(_flags_variable "HET_TF_CXX_FLAGS_${TensorFlow_VERSION}")
if(NOT DEFINED ${_flags_variable})
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES= "${Python3_EXECUTABLE}" -c
            "import tensorflow as tf; print(';'.join(f for f in tf.sysconfig.get_compile_flags() if f.startswith('-D')))"
    OUTPUT_VARIABLE _flags OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE _failed ERROR_VARIABLE _why)
  if(_failed)
    string(REGEX REPLACE ".*\n(.)" "\\1" _why "${_why}")
    message(FATAL_ERROR "import tensorflow fails: ${_why}Remedy: python -m het_tf doctor, or leave out the GPU's ops: -DHET_BUILD_GPU_OPS=OFF")
  endif()
  set(${_flags_variable} "${_flags}" CACHE INTERNAL "What tf.sysconfig.get_compile_flags() says")
endif()

file(GLOB gpu_op_sources CONFIGURE_DEPENDS het_tf/kernels/gpu/*.cc)
add_library(het_tf_gpu SHARED ${gpu_op_sources})
target_include_directories(het_tf_gpu PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
target_compile_options(het_tf_gpu PRIVATE ${${_flags_variable}})
target_compile_definitions(het_tf_gpu PRIVATE HET_TF_HEADERS="${TensorFlow_VERSION}")
# The engine is in libhet_tf.so, which is in the process when this one is loaded, or lies beside it.
target_link_libraries(het_tf_gpu PRIVATE het_compile het_tf TensorFlow::CAPI)
set_target_properties(het_tf_gpu PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN"
  LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/cmake/gpu_ops.map")
target_link_options(het_tf_gpu PRIVATE -Wl,--no-undefined -Wl,--gc-sections "-Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cmake/gpu_ops.map")
