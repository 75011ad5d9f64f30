/* Any bytes as a calibration: they are refused in one line that begins with the file's name, or
 * they give values that are in range and are the same when they are written and read again. */
#include "plan/cost/calibration.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct calibration c, back;
	struct err e = ERR_INIT;
	struct buf text = BUF_INIT;
	if (calibration_parse((const char *)data, size, "fuzz.json", &c, &e)) {
		if (e.code != ERR_USAGE || strncmp(e.text, "fuzz.json: ", 11) ||
		    strchr(e.text, '\n'))
			abort();
		return 0;
	}
	for (int i = 0; i < CALIBRATION_TRANSPORTS; i++)
		if (c.links[i].known && !(calibration_predict(&c.links[i], c.ranks, 1e6) > 0))
			abort();
	calibration_write(&c, &text);
	if (buf_failed(&text) || calibration_parse(text.data, text.len, "back.json", &back, &e) ||
	    memcmp(&c, &back, sizeof c))
		abort();
	buf_fini(&text);
	return 0;
}
