// The reader of /sys, /proc and cgroups on made-up machines: complete, containers, missing and broken files.
#include "base/os/topology.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "support/rooms.h"
#include "support/temp_dir.h"

namespace moe::test::topology_test {
namespace {

TEST(CpuListText, ReadsWhatTheKernelWrites) {
  EXPECT_EQ(parse_cpu_list("0-3,8"), (CpuList{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("5"), CpuList{5});
  EXPECT_EQ(parse_cpu_list("0-1\n"), (CpuList{0, 1}));
  EXPECT_EQ(parse_cpu_list(""), CpuList{});
  EXPECT_EQ(parse_cpu_list("8,0-2,1-3"), (CpuList{0, 1, 2, 3, 8}));  // any order, overlapping
  EXPECT_EQ(parse_cpu_list(" 1 , 2 "), (CpuList{1, 2}));
  EXPECT_EQ(parse_cpu_list("65535"), CpuList{65535});
}

TEST(CpuListText, RefusesEverythingElse) {
  for (const char* text : {",", "1,", ",1", "1,,2", "-", "-1", "1-", "3-1", "a", "1-a", "0x1", "1.5", "1-2-3", "65536",
                           "0-65536", "99999999999999999999", "1;2", "0-3/2"})
    EXPECT_EQ(parse_cpu_list(text), std::nullopt) << text;
}

TEST(CpuListText, HugeListsEnd) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "0-65535,";
  EXPECT_EQ(parse_cpu_list(text + "0"), std::nullopt);
}

TEST(CpuListText, WritesRanges) {
  EXPECT_EQ(cpu_list_text({}), "");
  EXPECT_EQ(cpu_list_text({4}), "4");
  EXPECT_EQ(cpu_list_text({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
}

TEST(ReadFact, TrimsAndIsBounded) {
  const TempDir dir;
  dir.write("a", "  value \n\n");
  dir.write("long", std::string(1 << 20, 'x'));
  EXPECT_EQ(read_fact(dir.path() + "/a"), "value");
  EXPECT_EQ(read_fact(dir.path() + "/none"), std::nullopt);
  EXPECT_EQ(read_fact(dir.path()), std::nullopt);  // a directory
  const auto text = read_fact(dir.path() + "/long");
  ASSERT_TRUE(text);
  EXPECT_LE(text->size(), std::size_t{65536} + 1024);
}

TEST(AllowedCpus, AreTheAffinityMask) {
  const CpuList cpus = allowed_cpus();
  ASSERT_FALSE(cpus.empty());
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_EQ(cpus.size(), static_cast<std::size_t>(CPU_COUNT(&set)));
  for (int cpu : cpus) EXPECT_TRUE(CPU_ISSET(static_cast<std::size_t>(cpu), &set));
}

TEST(Quota, V2TakesTheSmallestOnTheWay) {
  const TempDir dir;
  dir.write("proc/self/cgroup", "0::/a/b\n");
  dir.write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(dir.path()), std::nullopt);
  dir.write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpu_quota(dir.path()), 1.5);
  dir.write("sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(cpu_quota(dir.path()), 1.5);
  dir.write("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(cpu_quota(dir.path()), 0.5);
}

TEST(Quota, V2InAContainerWhosePathIsNotThere) {
  const TempDir dir;
  dir.write("proc/self/cgroup", "0::/docker/0123abcd\n");
  dir.write("sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(cpu_quota(dir.path()), 3.0);
}

TEST(Quota, V1) {
  const TempDir dir;
  dir.write("proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n");
  EXPECT_EQ(cpu_quota(dir.path()), std::nullopt);
  dir.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  dir.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(dir.path()), std::nullopt);
  dir.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(cpu_quota(dir.path()), 2.5);
  dir.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");  // the mount may have the short name
  dir.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(dir.path()), 2.0);
}

TEST(Quota, StrangeFilesAreNoLimit) {
  for (const char* text : {"", "max", "0 100000", "-5 100000", "100000 0", "a b", "100000", "1e5 100000"}) {
    const TempDir dir;
    dir.write("proc/self/cgroup", "0::/\n");
    dir.write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(cpu_quota(dir.path()), std::nullopt) << text;
  }
  for (const char* text : {"", "0", "0:", "::::", "0::", "\n\n", "0::relative"}) {
    const TempDir dir;
    dir.write("proc/self/cgroup", text);
    EXPECT_EQ(cpu_quota(dir.path()), std::nullopt) << text;
  }
}

// Four cores of two threads each: 0+4, 1+5, 2+6, 3+7.
void write_smt(const TempDir& dir, const std::string& file) {
  for (int cpu = 0; cpu < 8; ++cpu)
    dir.write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + file,
              std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4) + "\n");
}

TEST(OnePerCore, CountsSiblingsOnce) {
  for (const char* file : {"core_cpus_list", "thread_siblings_list"}) {
    const TempDir dir;
    write_smt(dir, file);
    EXPECT_EQ(one_per_core({0, 1, 2, 3, 4, 5, 6, 7}, dir.path()), (CpuList{0, 1, 2, 3}));
    EXPECT_EQ(one_per_core({4, 5, 6, 7}, dir.path()), (CpuList{4, 5, 6, 7}));  // the first sibling is not ours
    EXPECT_EQ(one_per_core({1, 4, 5}, dir.path()), (CpuList{1, 4}));
    EXPECT_EQ(one_per_core({}, dir.path()), CpuList{});
  }
}

TEST(OnePerCore, UnknownTopologyKeepsEveryCpu) {
  const TempDir dir;
  EXPECT_EQ(one_per_core({0, 1, 2}, dir.path()), (CpuList{0, 1, 2}));
  dir.write("sys/devices/system/cpu/cpu1/topology/core_cpus_list", "what?");
  EXPECT_EQ(one_per_core({0, 1, 2}, dir.path()), (CpuList{0, 1, 2}));
}

TEST(NodeMaps, NumberTheNodesOfTheGivenCpus) {
  const TempDir dir;
  for (const auto& [id, cpus] :
       {std::pair{"0", "0-3,8"}, std::pair{"2", "4-5"}, std::pair{"3", ""}, std::pair{"10", "6-7"}})
    dir.write(std::string("sys/devices/system/node/node") + id + "/cpulist", cpus);
  const NodeMap all = node_map({0, 1, 2, 3, 4, 5, 6, 7, 8}, dir.path());
  EXPECT_EQ(all.count, 3);  // the one without CPUs is none
  EXPECT_EQ(all.of_cpu, (std::vector<std::uint16_t>{0, 0, 0, 0, 1, 1, 2, 2, 0}));
  const NodeMap some = node_map({2, 7}, dir.path());
  EXPECT_EQ(some.count, 2);
  EXPECT_EQ(some.of_cpu[7], 1);
  EXPECT_GE(some.here(), 0);
  EXPECT_LT(some.here(), 2);
  const NodeMap one = node_map({4, 5}, dir.path());
  EXPECT_EQ(one.count, 1);
  EXPECT_EQ(one.here(), 0);
}

TEST(NodeMaps, UnknownTopologyIsOneNode) {
  const TempDir dir;
  EXPECT_EQ(node_map({0, 1}, dir.path()).count, 1);
  dir.write("sys/devices/system/node/node0/cpulist", "what?");
  dir.write("sys/devices/system/node/node1/cpulist", "0-1");
  EXPECT_EQ(node_map({0, 1}, dir.path()).count, 1);
  EXPECT_EQ(node_map({}, dir.path()).count, 1);
}

nlohmann::json report(const std::string& root) {
  std::string text = "{";
  text += topology_members(root);
  text += "}";
  return nlohmann::json::parse(text);
}

TEST(TopologyMembers, OfAWholeMachine) {
  const TempDir dir;
  write_smt(dir, "core_cpus_list");
  dir.write("sys/devices/system/cpu/online", "0-7\n");
  dir.write("proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\n");
  dir.write("proc/self/cgroup", "0::/\n");
  dir.write("sys/fs/cgroup/cpu.max", "350000 100000\n");
  dir.write("sys/devices/system/node/node0/cpulist", "0-3\n");
  dir.write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       1024 kB\n");
  dir.write("sys/devices/system/node/node1/cpulist", "4-7\n");
  dir.write("sys/devices/system/node/possible", "0-1\n");
  dir.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr", "0");
  dir.write("sys/kernel/mm/hugepages/hugepages-1048576kB/nr", "0");
  const auto cache = [&](int i, const char* level, const char* type, const char* size) {
    const std::string base = "sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i);
    dir.write(base + "/level", level);
    dir.write(base + "/type", type);
    dir.write(base + "/size", size);
  };
  cache(0, "1", "Data\n", "48K\n");
  cache(1, "1", "Instruction\n", "32K\n");
  cache(2, "2", "Unified\n", "2048K\n");
  cache(3, "3", "Unified\n", "32M\n");

  const nlohmann::json r = report(dir.path());
  EXPECT_EQ(r["cores"], 4);
  EXPECT_EQ(r["threads"], 8);
  EXPECT_EQ(r["quota_cpus"], 3.5);
  EXPECT_TRUE(r["quota_cpus"].is_number_float());
  EXPECT_EQ(r["memory_bytes"], 2097152);
  EXPECT_EQ(r["cache"], (nlohmann::json{{"l1d", 49152}, {"l2", 2097152}, {"l3", 33554432}}));
  ASSERT_EQ(r["numa"].size(), 2u);
  EXPECT_EQ(r["numa"][0], (nlohmann::json{{"id", 0}, {"cpus", "0-3"}, {"memory_bytes", 1048576}}));
  EXPECT_EQ(r["numa"][1], (nlohmann::json{{"id", 1}, {"cpus", "4-7"}}));
  EXPECT_EQ(r["page_sizes"].size(), 3u);
  EXPECT_EQ(r["page_sizes"][1], 2097152);
  EXPECT_EQ(r["page_sizes"][2], 1073741824);
}

TEST(TopologyMembers, LeavesOutWhatIsMissingOrBroken) {
  const TempDir dir;
  nlohmann::json r = report(dir.path());
  for (const char* name : {"cores", "threads", "quota_cpus", "numa", "cache", "memory_bytes"})
    EXPECT_FALSE(r.contains(name)) << name;
  EXPECT_TRUE(r.contains("page_sizes"));  // asked of the C library

  dir.write("sys/devices/system/cpu/online", "x");
  dir.write("proc/meminfo", "MemTotal: 99999999999999999999 kB\n");
  dir.write("sys/devices/system/node/nodeX/cpulist", "0");
  dir.write("sys/devices/system/cpu/cpu0/cache/index0/level", "1");
  dir.write("sys/devices/system/cpu/cpu0/cache/index0/type", "Data");
  dir.write("sys/devices/system/cpu/cpu0/cache/index0/size", "K");
  r = report(dir.path());
  for (const char* name : {"cores", "numa", "cache", "memory_bytes"}) EXPECT_FALSE(r.contains(name)) << name;
}

TEST(TopologyMembers, OfThisMachine) {
  const nlohmann::json r = report("");
  EXPECT_EQ(r["allowed_cpus"], cpu_list_text(allowed_cpus()));
  EXPECT_GT(r["memory_bytes"].get<std::int64_t>(), 0);
  EXPECT_NE(r["os"].get<std::string>().find("Linux"), std::string::npos);
}

}  // namespace
}  // namespace moe::test::topology_test
