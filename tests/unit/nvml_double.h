/* nvml_double — where the double of NVIDIA's library is (tests/doubles/nvml.c): beside the folders of the tests. */
#ifndef MUSTER_TESTS_UNIT_NVML_DOUBLE_H
#define MUSTER_TESTS_UNIT_NVML_DOUBLE_H

#include <string.h>
#include <unistd.h>

enum { NVML_DOUBLE_PATH = 4096 };

/* Sets `path`. Returns 0, or -1: it is not there. */
static inline int nvml_double_find(char path[NVML_DOUBLE_PATH])
{
	ssize_t n = readlink("/proc/self/exe", path, NVML_DOUBLE_PATH - 64);
	if (n <= 0)
		return -1;
	path[n] = '\0';
	for (int up = 0; up < 3; up++)
		*strrchr(path, '/') = '\0';
	strcat(path, "/doubles/libnvidia-ml.so.1");
	return access(path, R_OK);
}

#endif
