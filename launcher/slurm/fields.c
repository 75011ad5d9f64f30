#include "launcher/slurm/fields.h"

#include <stdio.h>
#include <string.h>

bool slurm_field(const char *text, const char *name, char *value, size_t size)
{
	size_t len = strlen(name);
	for (const char *at = text; (at = strstr(at, name)); at += len) {
		if ((at != text && at[-1] != ' ') || at[len] != '=')
			continue;
		size_t n = strcspn(at + len + 1, " \n");
		if (!n || n >= size)
			return false;
		memcpy(value, at + len + 1, n);
		value[n] = '\0';
		return true;
	}
	return false;
}

void slurm_setting(const char *config, const char *name, char *value, size_t size)
{
	size_t len = strlen(name);
	value[0] = '\0';
	for (const char *at = config; *at; at += strcspn(at, "\n"), at += *at == '\n') {
		if (strncmp(at, name, len) || (at[len] != ' ' && at[len] != '='))
			continue;
		const char *from = at + len + strspn(at + len, " ");
		if (*from == '=') {
			from += 1 + strspn(from + 1, " ");
			snprintf(value, size, "%.*s", (int)strcspn(from, "\n"), from);
			return;
		}
	}
}
