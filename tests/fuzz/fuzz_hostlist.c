/* Any bytes as host lists and task counts in the environment. */
#include "topo/hostlist.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	struct hostlist h;
	int counts[7];
	if (!topo_hostlist_expand(text, &h, NULL)) {
		if (h.n < 1 || h.n > HOSTLIST_MAX)
			abort();
		for (int i = 0; i < h.n; i++)
			if (!h.names[i][0] || strlen(h.names[i]) >= HOSTLIST_NAME)
				abort();
		topo_hostlist_free(&h);
	}
	if (!topo_hostlist_counts(text, counts, 7, NULL))
		for (int i = 0; i < 7; i++)
			if (counts[i] < 0 || counts[i] > 1000000)
				abort();
	free(text);
	return 0;
}
