#include "launcher/slurm/setting.h"

#include <stdio.h>
#include <string.h>

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
