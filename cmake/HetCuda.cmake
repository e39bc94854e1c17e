# libhet_cuda.so (nvcc): the embedding cache in the memory of a GPU; and libhet_cuda_host.so (the C++ compiler), the
# same sources with the host in the GPU's place, for tests.
#
#   het_tf/kernels/cuda/*.cu       both, except cuda_*.cu, which only nvcc compiles
#   tests/ext/gpu/device/host/*.cc     only libhet_cuda_host.so
#   het_tf/kernels/cuda/nvcc.options  options of nvcc, all but the architectures
set(HET_CUDA "AUTO" CACHE STRING "Build libhet_cuda.so: ON, OFF, or AUTO (where there is nvcc of CUDA 13 or newer)")
set_property(CACHE HET_CUDA PROPERTY STRINGS AUTO ON OFF)
set(HET_CUDA_ARCH "all" CACHE STRING
  "GPUs that libhet_cuda.so is for. 'all': machine code for each generation from compute capability 7.5 on, and PTX for \
later ones. 'ptx': PTX of 7.5 alone, quick to build; the driver compiles it when it is loaded. Or a list, such as 90 or 80;90")

set(_cuda_folder "${CMAKE_CURRENT_SOURCE_DIR}/het_tf/kernels/cuda")
file(GLOB _cuda_sources CONFIGURE_DEPENDS "${_cuda_folder}/*.cu")
file(GLOB _host_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/tests/ext/gpu/device/host/*.cc")
set(_shared_sources ${_cuda_sources})
list(FILTER _shared_sources EXCLUDE REGEX "/cuda_[a-z_]*\\.cu$")

# --- libhet_cuda_host.so ---------------------------------------------------------------------------
if(HET_BUILD_TESTS)
  set_source_files_properties(${_shared_sources} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++")
  add_library(het_cuda_host SHARED EXCLUDE_FROM_ALL ${_shared_sources} ${_host_sources})
  target_include_directories(het_cuda_host PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}")
  target_link_libraries(het_cuda_host PRIVATE het_compile het_undefined Threads::Threads)
  target_link_options(het_cuda_host PRIVATE
    "-Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cmake/cuda.map")
  set_target_properties(het_cuda_host PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}"
    LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/cmake/cuda.map")
endif()

# --- libhet_cuda.so ---------------------------------------------------------------------------------
if(NOT HET_CUDA OR NOT HET_BUILD_PLUGIN)
  return()
endif()
find_program(HET_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT HET_NVCC)
  if(HET_CUDA STREQUAL "AUTO")
    message(STATUS "het_tf: no nvcc here, so libhet_cuda.so is not built (caches on a GPU need it)")
    return()
  endif()
  message(FATAL_ERROR "HET_CUDA is ${HET_CUDA}, and there is no nvcc. Remedy: install the CUDA toolkit, "
    "-DHET_NVCC=/path/to/nvcc, or -DHET_CUDA=OFF")
endif()

execute_process(COMMAND "${HET_NVCC}" --version OUTPUT_VARIABLE _release ERROR_VARIABLE _release)
string(REGEX MATCH "release ([0-9.]+)" _release "${_release}")
set(_release "${CMAKE_MATCH_1}")
if(HET_CUDA STREQUAL "AUTO" AND NOT _release VERSION_GREATER_EQUAL 13)
  message(STATUS "het_tf: ${HET_NVCC} is ${_release}, not CUDA 13 or newer, so libhet_cuda.so is not built (-DHET_CUDA=ON tries)")
  return()
endif()

# Machine code for one compute capability runs on all later ones of the same generation.
set(_gencode)
if(HET_CUDA_ARCH STREQUAL "ptx")
  set(_gencode "-gencode=arch=compute_75,code=compute_75")
elseif(HET_CUDA_ARCH STREQUAL "all")
  execute_process(COMMAND "${HET_NVCC}" --list-gpu-arch OUTPUT_VARIABLE _known COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9]+" _known "${_known}")
  list(SORT _known COMPARE NATURAL)
  set(_generation "")
  set(_newest "")
  foreach(_arch IN LISTS _known)
    string(REGEX REPLACE ".$" "" _of "${_arch}")
    if(_arch GREATER_EQUAL 75 AND NOT _of STREQUAL _generation)
      list(APPEND _gencode "-gencode=arch=compute_${_arch},code=sm_${_arch}")
      set(_generation "${_of}")
      set(_newest "${_arch}")
    endif()
  endforeach()
  if(NOT _newest)
    message(FATAL_ERROR "${HET_NVCC} knows no GPU of compute capability 7.5 or later. Remedy: a newer CUDA toolkit, or -DHET_CUDA=OFF")
  endif()
  list(APPEND _gencode "-gencode=arch=compute_${_newest},code=compute_${_newest}")
else()
  foreach(_arch IN LISTS HET_CUDA_ARCH)
    list(APPEND _gencode "-gencode=arch=compute_${_arch},code=sm_${_arch}")
  endforeach()
endif()
string(REGEX REPLACE "-gencode=arch=compute_[0-9]+,code=" "" _architectures "${_gencode}")
string(REPLACE ";" " " _architectures "${_architectures}")
message(STATUS "het_tf: libhet_cuda.so for ${_architectures}")

set(_objects)
set(_werror)
if(HET_WERROR)
  set(_werror -Werror all-warnings -Xcompiler -Werror)
endif()
foreach(_source IN LISTS _cuda_sources)
  get_filename_component(_name "${_source}" NAME_WE)
  set(_object "${PROJECT_BINARY_DIR}/cuda/${_name}.o")
  add_custom_command(OUTPUT "${_object}"
    COMMAND ${HET_CCACHE} "${HET_NVCC}" -ccbin "${CMAKE_CXX_COMPILER}" --options-file "${_cuda_folder}/nvcc.options"
      ${_werror} ${_gencode} "-DHET_CUDA_ARCHITECTURES=\"${_architectures}\"" "-I${CMAKE_CURRENT_SOURCE_DIR}"
      -MD -MF "${_object}.d" -c "${_source}" -o "${_object}"
    DEPENDS "${_source}" "${_cuda_folder}/nvcc.options" DEPFILE "${_object}.d" VERBATIM
    COMMENT "Building CUDA object ${_name}.o")
  list(APPEND _objects "${_object}")
endforeach()

set(_library "${PROJECT_BINARY_DIR}/libhet_cuda.so")
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/cuda")
add_custom_command(OUTPUT "${_library}"
  COMMAND "${HET_NVCC}" -ccbin "${CMAKE_CXX_COMPILER}" ${_gencode} -shared -cudart static ${_objects} -o "${_library}"
    -Xlinker --no-undefined -Xlinker "--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cmake/cuda.map"
  DEPENDS ${_objects} "${CMAKE_CURRENT_SOURCE_DIR}/cmake/cuda.map" VERBATIM
  COMMENT "Linking libhet_cuda.so")
add_custom_target(het_cuda ALL DEPENDS "${_library}")
add_dependencies(het_plugin het_cuda)
install(FILES "${_library}" DESTINATION "${HET_LIB_DIR}" COMPONENT gpu)

if(HET_INSTALL_IN_TREE)
  # Renamed into place, as the plugin is.
  set(_in_tree "${CMAKE_CURRENT_SOURCE_DIR}/het_tf/lib/libhet_cuda.so")
  add_custom_command(OUTPUT "${_in_tree}"
    COMMAND ${CMAKE_COMMAND} -E make_directory "${CMAKE_CURRENT_SOURCE_DIR}/het_tf/lib"
    COMMAND ${CMAKE_COMMAND} -E copy "${_library}" "${_in_tree}.new"
    COMMAND ${CMAKE_COMMAND} -E rename "${_in_tree}.new" "${_in_tree}"
    DEPENDS "${_library}" VERBATIM
    COMMENT "Copying libhet_cuda.so to het_tf/lib")
  add_custom_target(het_cuda_in_tree DEPENDS "${_in_tree}")
  add_dependencies(het_plugin het_cuda_in_tree)
endif()
