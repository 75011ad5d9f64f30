#include "base/time_parts.h"

/* As for a COUNT of base/fields.h. */
static const int64_t most_us = INT64_C(1) << 62;

static const struct {
	const char *name;
	bool transfers;
} rows[TIME_PART_COUNT] = {
#define TIME_PART_ROW(with, ENUM, member, name, transfers, doc) [TIME_##ENUM] = { name, transfers },
	TIME_PARTS(TIME_PART_ROW, )
#undef TIME_PART_ROW
};

const char *time_part_name(enum time_part part)
{
	return rows[part].name;
}

bool time_part_transfers(enum time_part part)
{
	return rows[part].transfers;
}

bool time_part_counts(enum time_part part)
{
	return part >= TIME_DATA && part <= TIME_SLOWEST && part != TIME_CHECKPOINT;
}

int64_t time_parts_sum(const int64_t parts[TIME_PART_COUNT])
{
	int64_t sum = 0;
	for (int i = 0; i < TIME_PART_COUNT; i++)
		sum += parts[i];
	return sum;
}

double time_parts_goodput(const int64_t parts[TIME_PART_COUNT])
{
	int64_t all = time_parts_sum(parts), counts = 0;
	for (int i = 0; i < TIME_PART_COUNT; i++)
		counts += time_part_counts((enum time_part)i) ? parts[i] : 0;
	return all > 0 ? (double)counts / (double)all : 0;
}

json_t *time_reported_json(const int64_t us[TIME_REPORTED])
{
	json_t *list = json_array();
	for (int i = 0; i < TIME_REPORTED; i++)
		if (list && json_array_append_new(list, json_integer(us[i]))) {
			json_decref(list);
			list = NULL;
		}
	return list;
}

bool time_reported_valid(const int64_t us[TIME_REPORTED])
{
	for (int i = 0; i < TIME_REPORTED; i++)
		if (us[i] < 0 || us[i] > most_us)
			return false;
	return true;
}

int time_reported_read(const json_t *list, int64_t us[TIME_REPORTED], struct err *e)
{
	if (json_array_size(list) != TIME_REPORTED)
		return err_set(e, ERR_PROTO, "a list of %d times is expected, found %zu",
			       (int)TIME_REPORTED, json_array_size(list));
	for (int i = 0; i < TIME_REPORTED; i++) {
		const json_t *v = json_array_get(list, (size_t)i);
		us[i] = json_is_integer(v) ? json_integer_value(v) : -1;
	}
	return time_reported_valid(us)
		       ? 0
		       : err_set(e, ERR_PROTO, "a list of times has one that is not valid");
}
