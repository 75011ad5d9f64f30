/* Any bytes as submissions.jsonl: each line that is read has what every submission has. */
#include "launcher/rundir/submissions.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rundir_submissions all;
	if (rundir_submissions_parse((const char *)data, size, &all, NULL))
		return 0;
	for (int i = 0; i < all.n; i++) {
		int at = rundir_submissions_find(&all, all.of[i].job);
		if (at < i || (all.of[i].has_by && !all.of[i].by))
			abort();
	}
	rundir_submissions_free(&all);
	return 0;
}
