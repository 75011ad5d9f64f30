/* Any bytes as a rank's timeline: they are refused or drawn. */
#include "plan/show/draw_timeline.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *doc = json_loadb((const char *)data, size, 0, NULL);
	struct timeline t = { 0 };
	struct err e = ERR_INIT;
	if (doc && timeline_read(doc, "it", &t, &e) == 0 && t.ranks <= 64) {
		struct drawing d = { .title = "it",
				     .parts = { { .name = "measured", .timeline = &t } },
				     .n_parts = 1 };
		struct buf out = BUF_INIT;
		timeline_begin_at_zero(&t);
		show_draw_text(&d, 100, size % 2, &out);
		show_draw_svg(&d, &out);
		buf_fini(&out);
	}
	timeline_free(&t);
	json_decref(doc);
	return 0;
}
