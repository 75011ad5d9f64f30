/* Any bytes that a program gets over its client channel: muster_client.h ignores them, or takes them for
 * a stop at some step. */
#include "agent/client/muster_client.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);
	if (!text)
		return 0;
	muster_client_state.asked = 0;
	muster_client_take(text);
	if (muster_client_state.asked && (*text != '{' || !strstr(text, "stop")))
		abort();
	if (muster_client_state.stop_at < -1)
		abort();
	free(text);
	return 0;
}
