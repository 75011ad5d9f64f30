#include "base/time_parts.h"

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
