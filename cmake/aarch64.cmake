# Toolchain file: from Debian on x86-64 to aarch64, tests run by qemu-user. tools/check-aarch64 prepares the folder
# FLATOUT_SYSROOT, which holds the arm64 libraries; the C library comes with the cross compiler.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FLATOUT_SYSROOT)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(libraries "${FLATOUT_SYSROOT}/usr/lib/aarch64-linux-gnu")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=${libraries})
set(CMAKE_FIND_ROOT_PATH "${FLATOUT_SYSROOT}" /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
# pkg-config leaves out the system's folders, which these are to it.
set(ENV{PKG_CONFIG_LIBDIR} "${libraries}/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${FLATOUT_SYSROOT}")
set(ENV{PKG_CONFIG_ALLOW_SYSTEM_CFLAGS} 1)
set(ENV{PKG_CONFIG_ALLOW_SYSTEM_LIBS} 1)
