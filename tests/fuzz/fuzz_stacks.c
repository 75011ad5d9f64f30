/* What the kernel says of a system call, and what a debugger prints. The first byte is the
 * thread. */
#include "agent/stacks/calls.h"
#include "agent/stacks/frames.h"
#include "agent/stacks/python.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct call call;
	char frame[FRAME_NAME] = "";
	char *text = size ? strndup((const char *)data + 1, size - 1) : NULL;
	if (!text)
		return 0;
	stacks_call_parse(text, &call);
	if (call.fd < -1 || strlen(call.name) >= sizeof call.name ||
	    (call.fd >= 0 && call.role != CALL_FILE))
		abort();
	if (stacks_frame_of(text, data[0] % 16, frame) && !*frame)
		abort();
	struct python_frames python;
	bool found = stacks_python_frames(text, data[0] % 16, data[0] & 16, &python);
	if (found != (*python.inner != '\0') || (*python.caller && !found) ||
	    strlen(python.inner) >= PYTHON_FRAME || strlen(python.caller) >= PYTHON_FRAME)
		abort();
	free(text);
	return 0;
}
