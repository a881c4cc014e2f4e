/* Shared libraries that are found and loaded at run time: those of devices, of drivers, of MPI. */
#ifndef FO_BASE_LIBRARY_H
#define FO_BASE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* Starts zeroed. */
struct fo_library {
	void *handle;   /* NULL: not loaded */
	char file[512]; /* as it was opened, or tried last */
	char why[768];  /* the system loader's first complaint about a file that is there; "": none was there */
};
/* Opens `name` in the folder folder[0..len), or where the system's loader finds it (len 0). Nothing happens where l is
 * open. Its functions are seen by this program's own look-ups alone. Libraries stay loaded. */
bool fo_library_open(struct fo_library *l, const char *folder, size_t len, const char *name);
/* The same in the first of "folder:folder" that has it; folders may be NULL. */
bool fo_library_open_in(struct fo_library *l, const char *folders, const char *name);
/* The address of a function, as memory (ISO C has no conversion to a pointer of a function): copies it to *to. false:
 * there is none, and *to is NULL. */
bool fo_library_find(const struct fo_library *l, const char *function, void *to);
/* The folder that this program's file lies in, with its length; "" where the system does not say. */
const char *fo_library_program_folder(void);

#endif
