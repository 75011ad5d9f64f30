/* The names of kernels, read from the library's file, since most of them are not in the loader's
 * tables. */
#include "tests/gpu/emulator/block.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The demangled C++ name; NULL without libstdc++. */
static char *demangled(const char *name)
{
	char *(*demangle)(const char *, char *, size_t *, int *);
	void *lib = dlopen("libstdc++.so.6", RTLD_LAZY);
	*(void **)(void *)&demangle = lib ? dlsym(lib, "__cxa_demangle") : NULL;
	return demangle ? demangle(name, NULL, NULL, NULL) : NULL;
}

static const char *symbol_at(const char *file, uintptr_t at)
{
	const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)(const void *)file;
	const ElfW(Shdr) *sections = (const ElfW(Shdr) *)(const void *)(file + head->e_shoff);
	for (int i = 0; i < head->e_shnum; i++) {
		if (sections[i].sh_type != SHT_SYMTAB)
			continue;
		const ElfW(Sym) *s =
			(const ElfW(Sym) *)(const void *)(file + sections[i].sh_offset);
		const char *strings = file + sections[sections[i].sh_link].sh_offset;
		for (size_t n = sections[i].sh_size / sizeof *s; n; n--, s++)
			if (s->st_value == at && (s->st_info & 0xf) == STT_FUNC)
				return strings + s->st_name;
	}
	return NULL;
}

const char *emulated_name(const void *function)
{
	static char text[300];
	Dl_info info;
	struct stat st;
	snprintf(text, sizeof text, "%p", function);
	int fd = dladdr(function, &info) && info.dli_fname ? open(info.dli_fname, O_RDONLY) : -1;
	if (fd < 0 || fstat(fd, &st) < 0)
		return text;
	char *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	bool fixed = file != MAP_FAILED &&
		     ((const ElfW(Ehdr) *)(const void *)file)->e_type == ET_EXEC;
	const char *name =
		file == MAP_FAILED
			? NULL
			: symbol_at(file,
				    (uintptr_t)function - (fixed ? 0 : (uintptr_t)info.dli_fbase));
	if (!name)
		return text;
	char *readable = demangled(name);
	snprintf(text, sizeof text, "%s", readable ? readable : name);
	text[strcspn(text, "(")] = '\0';
	free(readable);
	return text;
}
