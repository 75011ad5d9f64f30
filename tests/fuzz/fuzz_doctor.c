/* The report of a node, and the needs of a job that a node receives. The first byte chooses the
 * reader. */
#include "launcher/doctor/doctor.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void findings(const char *text)
{
	struct doctor_node node = { .name = "n1" };
	struct buf page = BUF_INIT;
	json_t *list = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	doctor_findings_read(&node.found, list);
	doctor_print(&node, 1, true, false, 80, &page);
	json_decref(doctor_json(&node, 1));
	json_decref(list);
	buf_fini(&page);
	doctor_findings_fini(&node.found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct needs n;
	char *text = size ? strndup((const char *)data + 1, size - 1) : NULL;
	if (!text)
		return 0;
	if (data[0] == 'f')
		findings(text);
	else if (data[0] == 'n')
		doctor_needs_read(text, &n, NULL);
	free(text);
	return 0;
}
