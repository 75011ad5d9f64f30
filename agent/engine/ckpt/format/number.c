#include "agent/engine/ckpt/format/manifest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool ckpt_word(const char *text)
{
	size_t n = text ? strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
	return n > 0 && n < CKPT_WORD && text[n] == '\0';
}

double ckpt_number(const struct ckpt_state *s, const char *name, double otherwise)
{
	for (int i = 0; i < s->n_numbers; i++)
		if (!strcmp(s->numbers[i].name, name))
			return s->numbers[i].value;
	return otherwise;
}

int64_t ckpt_count(const struct ckpt_state *s, const char *name)
{
	double n = ckpt_number(s, name, 0);
	return n >= 0 && n <= (double)(1LL << 53) ? (int64_t)n : 0;
}

int ckpt_number_set(struct ckpt_state *s, const char *name, double value, struct err *e)
{
	int at = 0;
	while (at < s->n_numbers && strcmp(s->numbers[at].name, name))
		at++;
	if (!ckpt_word(name) || !isfinite(value) || at == CKPT_NUMBERS)
		return err_set(e, ERR_INTERNAL,
			       "a checkpoint cannot hold %.40s = %g: it has %d numbers at most, "
			       "finite, with names of [a-z0-9_]",
			       name, value, CKPT_NUMBERS);
	snprintf(s->numbers[at].name, CKPT_WORD, "%s", name);
	s->numbers[at].value = value;
	s->n_numbers += at == s->n_numbers;
	return 0;
}
