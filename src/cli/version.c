/* The version of this binary and the instruction sets of this machine. */
#include "cli/cli.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if __has_include("fo_version.h")
#include "fo_version.h"
#else /* built by hand, without CMake */
#define FO_VERSION "unknown"
#define FO_VERSION_COMMIT "unknown"
#define FO_VERSION_COMPILER __VERSION__
#define FO_VERSION_ARCH "unknown"
#define FO_VERSION_BUILD "unknown"
#define FO_VERSION_LIBRARIES "unknown"
#endif

#if defined(__x86_64__)
/* Intel SDM volume 1, 18.2: leaf 7 EDX bit 22 is AMX-BF16, bit 24 AMX-TILE; XCR0 bits 17 and 18 say that the system
 * saves the tiles. Asked by hand because clang 14's __builtin_cpu_supports() does not know AMX. */
static bool has_amx_bf16(void)
{
	unsigned a, b, c, d;
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) /* OSXSAVE: XGETBV may be used */
		return false;
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1))
		return false;
	unsigned low, high;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (low >> 17 & 3) == 3;
}

static void isa_names(struct fo_str *out)
{
	__builtin_cpu_init();
	fo_str_puts(out, "x86-64");
	if (__builtin_cpu_supports("sse4.2"))
		fo_str_puts(out, " sse4.2");
	if (__builtin_cpu_supports("avx2"))
		fo_str_puts(out, " avx2");
	if (__builtin_cpu_supports("fma"))
		fo_str_puts(out, " fma");
	if (__builtin_cpu_supports("avx512f"))
		fo_str_puts(out, " avx512f");
	if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512dq"))
		fo_str_puts(out, " avx512bw avx512vl avx512dq");
	if (__builtin_cpu_supports("avx512bf16"))
		fo_str_puts(out, " avx512bf16");
	if (has_amx_bf16())
		fo_str_puts(out, " amx-bf16");
}
#elif defined(__aarch64__)
static void isa_names(struct fo_str *out) { fo_str_puts(out, "aarch64 neon"); }
#else
static void isa_names(struct fo_str *out) { fo_str_puts(out, "portable C"); }
#endif

const char fo_version_number[] = FO_VERSION;

void fo_version_text(struct fo_str *out, bool json)
{
	struct fo_str isa = { 0 };
	isa_names(&isa);
#ifdef FO_NO_ENGINE
	const bool engine = false;
#else
	const bool engine = true;
#endif
	if (json) {
		struct fo_json j;
		fo_json_begin(&j, out, true);
		fo_json_record(&j, NULL, FO_INT("schema", 1), FO_TEXT("version", FO_VERSION),
			       FO_TEXT("commit", FO_VERSION_COMMIT), FO_TEXT("compiler", FO_VERSION_COMPILER),
			       FO_TEXT("architecture", FO_VERSION_ARCH), FO_TEXT("build", FO_VERSION_BUILD),
			       FO_BOOL("engine", engine), FO_TEXT("isa", isa.data),
			       FO_TEXT("libraries", FO_VERSION_LIBRARIES));
	} else {
		fo_str_printf(out, "flatout %s\n", FO_VERSION);
		fo_str_printf(out, "commit     %s\n", FO_VERSION_COMMIT);
		fo_str_printf(out, "compiler   %s, %s build%s\n", FO_VERSION_COMPILER, FO_VERSION_BUILD,
			      engine ? "" : ", without the training engine");
		fo_str_printf(out, "machine    %s\n", isa.data);
		fo_str_puts(out, "libraries  ");
		fo_opt_wrapped(out, FO_VERSION_LIBRARIES, 11, "           ", 80);
	}
	fo_str_fini(&isa);
}
