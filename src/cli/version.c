/* The version of this binary and the instruction sets of this machine. */
#include "cli/cli.h"

#include "hw/state.h"

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

const char fo_version_number[] = FO_VERSION;

void fo_version_text(struct fo_str *out, bool json)
{
	struct fo_machine here;
	char isa[sizeof here.isa + 40];
	fo_machine_read(&here, "");
	snprintf(isa, sizeof isa, "%s %s", FO_VERSION_ARCH, here.isa);
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
			       FO_BOOL("engine", engine), FO_TEXT("isa", isa),
			       FO_TEXT("libraries", FO_VERSION_LIBRARIES));
	} else {
		fo_str_printf(out, "flatout %s\n", FO_VERSION);
		fo_str_printf(out, "commit     %s\n", FO_VERSION_COMMIT);
		fo_str_printf(out, "compiler   %s, %s build%s\n", FO_VERSION_COMPILER, FO_VERSION_BUILD,
			      engine ? "" : ", without the training engine");
		fo_str_printf(out, "machine    %s\n", isa);
		fo_str_puts(out, "libraries  ");
		fo_opt_wrapped(out, FO_VERSION_LIBRARIES, 11, "           ", 80);
	}
}
