/* Any bytes as a file of choices: whole lines are kept, and give the same text when they are
 * written and read again. */
#include "base/choices.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_value(struct choices *c)
{
	unsigned char value[CHOICES_VALUE];
	size_t length = 0;
	choices_set_machine(c, "chip");
	if (choices_find(c, "key", value, sizeof value, &length) && !length)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct choices *c = choices_open(), *back = choices_open();
	struct buf text = BUF_INIT, again = BUF_INIT;
	if (!c || !back)
		abort();
	choices_read(c, (const char *)data, size, true);
	check_value(c);
	choices_write(c, &text);
	if (buf_failed(&text) || choices_read(back, text.data, text.len, false))
		abort();
	choices_write(back, &again);
	if (text.len != again.len || memcmp(text.data, again.data, text.len))
		abort();
	buf_fini(&text);
	buf_fini(&again);
	choices_close(c);
	choices_close(back);
	return 0;
}
