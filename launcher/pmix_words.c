#include "launcher/pmix_words.h"

#include <stddef.h>
#include <string.h>

bool launcher_says_no_pmix(const char *text)
{
	static const char *const phrases[] = {
		"cannot find mpi plugin for",
		"Invalid MPI type",
		"MPI: Unable to load any plugin",
		"Couldn't find the specified plugin name for mpi/",
	};
	for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
		if (strstr(text, phrases[i]))
			return true;
	return false;
}
