#include "base/meminfo.h"

#include <stdio.h>
#include <string.h>

double meminfo_read(const char *name)
{
	char line[128], key[64];
	double kib = 0, value;
	FILE *file = fopen("/proc/meminfo", "re");
	while (file && kib <= 0 && fgets(line, sizeof line, file))
		if (sscanf(line, "%63[^:]: %lf", key, &value) == 2 && !strcmp(key, name))
			kib = value;
	if (file)
		fclose(file);
	return kib * 1024;
}
