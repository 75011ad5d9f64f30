/* Any bytes as a user's file of suspect nodes: each line that is read is complete, and each rating is a
 * probability. */
#include "launcher/suspects/suspects.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct suspects list = { .n = 0 };
	struct suspect_node *nodes = NULL;
	size_t half = size / 2;
	if (!suspects_parse((const char *)data, half, 0, &list, NULL) &&
	    !suspects_parse((const char *)data + half, size - half, 1, &list, NULL)) {
		int n = suspects_rate(&list, "alpha", 1.8e9, &nodes);
		for (int i = 0; i < n; i++)
			if (!(nodes[i].sure >= 0 && nodes[i].sure <= 1) || !nodes[i].lines ||
			    !nodes[i].latest->counts)
				abort();
	}
	free(nodes);
	suspects_free(&list);
	return 0;
}
