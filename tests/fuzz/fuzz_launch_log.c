/* The launch log: what srun, slurmstepd and the agents print. The first byte is the rank. */
#include "launcher/supervise/launch_log.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct launch_log log;
	char *text = size ? strndup((const char *)data + 1, size - 1) : NULL;
	if (!text)
		return 0;
	supervise_launch_log_read(text, (int8_t)data[0], &log);
	if (log.signal < 0 || log.status < 0 || log.said >= SLURM_WORDS)
		abort();
	free(text);
	return 0;
}
