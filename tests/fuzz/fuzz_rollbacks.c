/* Any bytes as rollbacks.jsonl: they are refused, or each line is a range with a reason. */
#include "base/ranges.h"
#include "launcher/rundir/rollbacks.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	json_t *list;
	if (rundir_rollbacks_parse((const char *)data, size, &list, &e)) {
		if (!e.text[0])
			abort();
		return 0;
	}
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *o = json_array_get(list, i);
		struct ranges r = { 0 };
		if (ranges_add(&r, json_integer_value(json_object_get(o, "first")),
			       json_integer_value(json_object_get(o, "count")), NULL) ||
		    !json_is_string(json_object_get(o, "reason")))
			abort();
	}
	json_decref(list);
	return 0;
}
