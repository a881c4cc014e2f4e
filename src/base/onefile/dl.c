/* Only in the one static file (cmake/FlatoutStatic.cmake): SQLite can load extensions, which a program without a
 * dynamic linker cannot. With the C library's own functions the link would warn, and a call would need the very C
 * library it was built with. The linker puts these in their place (--wrap). */
#include <stddef.h>

void *__wrap_dlopen(const char *file, int mode);
void *__wrap_dlsym(void *restrict handle, const char *restrict name);
int __wrap_dlclose(void *handle);
char *__wrap_dlerror(void);

void *__wrap_dlopen(const char *file, int mode)
{
	(void)file, (void)mode;
	return NULL;
}

void *__wrap_dlsym(void *restrict handle, const char *restrict name)
{
	(void)handle, (void)name;
	return NULL;
}

int __wrap_dlclose(void *handle)
{
	(void)handle;
	return 0;
}

char *__wrap_dlerror(void)
{
	static char text[] = "a static program loads no libraries";
	return text;
}
