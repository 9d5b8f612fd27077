// The largest graphs that people write: 128 layers on 8 ranks, and 126 stages of 8 ranks, as types and as a plan; and the largest models
// of experts, by every placement. They must compile at the compilers' default limits, and on clang with half of them
// (-fconstexpr-steps=524288).
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tenon/graph/graph.hpp>
#include <tenon/graph/placed.hpp>
#include <tenon/model/kinds.hpp>
#include <tenon/model/llama.hpp>
#include <tenon/model/qwen3_moe.hpp>
#include <utility>
#include <vector>

using namespace tenon;

namespace {
/// Llama 3.1 405B has 126 layers.
struct llama_405b {
    static constexpr auto config = model::llama({.layers = 126, .hidden = 16384, .heads = 128, .kv_heads = 8, .ffn = 53248, .vocab = 128256, .max_positions = 131072});
};
struct deep {
    static constexpr auto config = model::llama({.layers = 128, .hidden = 8192, .heads = 64, .kv_heads = 8, .ffn = 28672, .vocab = 128256});
};

struct wide : graph<deep, stage<layers<0, 127>, device::cpu<0, 1, 2, 3, 4, 5, 6, 7>, shard::tensor<>>> {
    static_assert(cost(weights::bf16).weight_bytes(device_index{7}) < 40'000'000'000);
};

// clang-format off
struct by_types : graph<llama_405b,
    stage<layers<0, 0>, device::cpu<0, 1, 2, 3, 4, 5, 6, 7>, shard::tensor<>>,
    stage<layers<1, 1>, device::cpu<8, 9, 10, 11, 12, 13, 14, 15>, shard::tensor<>>,
    stage<layers<2, 2>, device::cpu<16, 17, 18, 19, 20, 21, 22, 23>, shard::tensor<>>,
    stage<layers<3, 3>, device::cpu<24, 25, 26, 27, 28, 29, 30, 31>, shard::tensor<>>,
    stage<layers<4, 4>, device::cpu<32, 33, 34, 35, 36, 37, 38, 39>, shard::tensor<>>,
    stage<layers<5, 5>, device::cpu<40, 41, 42, 43, 44, 45, 46, 47>, shard::tensor<>>,
    stage<layers<6, 6>, device::cpu<48, 49, 50, 51, 52, 53, 54, 55>, shard::tensor<>>,
    stage<layers<7, 7>, device::cpu<56, 57, 58, 59, 60, 61, 62, 63>, shard::tensor<>>,
    stage<layers<8, 8>, device::cpu<64, 65, 66, 67, 68, 69, 70, 71>, shard::tensor<>>,
    stage<layers<9, 9>, device::cpu<72, 73, 74, 75, 76, 77, 78, 79>, shard::tensor<>>,
    stage<layers<10, 10>, device::cpu<80, 81, 82, 83, 84, 85, 86, 87>, shard::tensor<>>,
    stage<layers<11, 11>, device::cpu<88, 89, 90, 91, 92, 93, 94, 95>, shard::tensor<>>,
    stage<layers<12, 12>, device::cpu<96, 97, 98, 99, 100, 101, 102, 103>, shard::tensor<>>,
    stage<layers<13, 13>, device::cpu<104, 105, 106, 107, 108, 109, 110, 111>, shard::tensor<>>,
    stage<layers<14, 14>, device::cpu<112, 113, 114, 115, 116, 117, 118, 119>, shard::tensor<>>,
    stage<layers<15, 15>, device::cpu<120, 121, 122, 123, 124, 125, 126, 127>, shard::tensor<>>,
    stage<layers<16, 16>, device::cpu<128, 129, 130, 131, 132, 133, 134, 135>, shard::tensor<>>,
    stage<layers<17, 17>, device::cpu<136, 137, 138, 139, 140, 141, 142, 143>, shard::tensor<>>,
    stage<layers<18, 18>, device::cpu<144, 145, 146, 147, 148, 149, 150, 151>, shard::tensor<>>,
    stage<layers<19, 19>, device::cpu<152, 153, 154, 155, 156, 157, 158, 159>, shard::tensor<>>,
    stage<layers<20, 20>, device::cpu<160, 161, 162, 163, 164, 165, 166, 167>, shard::tensor<>>,
    stage<layers<21, 21>, device::cpu<168, 169, 170, 171, 172, 173, 174, 175>, shard::tensor<>>,
    stage<layers<22, 22>, device::cpu<176, 177, 178, 179, 180, 181, 182, 183>, shard::tensor<>>,
    stage<layers<23, 23>, device::cpu<184, 185, 186, 187, 188, 189, 190, 191>, shard::tensor<>>,
    stage<layers<24, 24>, device::cpu<192, 193, 194, 195, 196, 197, 198, 199>, shard::tensor<>>,
    stage<layers<25, 25>, device::cpu<200, 201, 202, 203, 204, 205, 206, 207>, shard::tensor<>>,
    stage<layers<26, 26>, device::cpu<208, 209, 210, 211, 212, 213, 214, 215>, shard::tensor<>>,
    stage<layers<27, 27>, device::cpu<216, 217, 218, 219, 220, 221, 222, 223>, shard::tensor<>>,
    stage<layers<28, 28>, device::cpu<224, 225, 226, 227, 228, 229, 230, 231>, shard::tensor<>>,
    stage<layers<29, 29>, device::cpu<232, 233, 234, 235, 236, 237, 238, 239>, shard::tensor<>>,
    stage<layers<30, 30>, device::cpu<240, 241, 242, 243, 244, 245, 246, 247>, shard::tensor<>>,
    stage<layers<31, 31>, device::cpu<248, 249, 250, 251, 252, 253, 254, 255>, shard::tensor<>>,
    stage<layers<32, 32>, device::cpu<256, 257, 258, 259, 260, 261, 262, 263>, shard::tensor<>>,
    stage<layers<33, 33>, device::cpu<264, 265, 266, 267, 268, 269, 270, 271>, shard::tensor<>>,
    stage<layers<34, 34>, device::cpu<272, 273, 274, 275, 276, 277, 278, 279>, shard::tensor<>>,
    stage<layers<35, 35>, device::cpu<280, 281, 282, 283, 284, 285, 286, 287>, shard::tensor<>>,
    stage<layers<36, 36>, device::cpu<288, 289, 290, 291, 292, 293, 294, 295>, shard::tensor<>>,
    stage<layers<37, 37>, device::cpu<296, 297, 298, 299, 300, 301, 302, 303>, shard::tensor<>>,
    stage<layers<38, 38>, device::cpu<304, 305, 306, 307, 308, 309, 310, 311>, shard::tensor<>>,
    stage<layers<39, 39>, device::cpu<312, 313, 314, 315, 316, 317, 318, 319>, shard::tensor<>>,
    stage<layers<40, 40>, device::cpu<320, 321, 322, 323, 324, 325, 326, 327>, shard::tensor<>>,
    stage<layers<41, 41>, device::cpu<328, 329, 330, 331, 332, 333, 334, 335>, shard::tensor<>>,
    stage<layers<42, 42>, device::cpu<336, 337, 338, 339, 340, 341, 342, 343>, shard::tensor<>>,
    stage<layers<43, 43>, device::cpu<344, 345, 346, 347, 348, 349, 350, 351>, shard::tensor<>>,
    stage<layers<44, 44>, device::cpu<352, 353, 354, 355, 356, 357, 358, 359>, shard::tensor<>>,
    stage<layers<45, 45>, device::cpu<360, 361, 362, 363, 364, 365, 366, 367>, shard::tensor<>>,
    stage<layers<46, 46>, device::cpu<368, 369, 370, 371, 372, 373, 374, 375>, shard::tensor<>>,
    stage<layers<47, 47>, device::cpu<376, 377, 378, 379, 380, 381, 382, 383>, shard::tensor<>>,
    stage<layers<48, 48>, device::cpu<384, 385, 386, 387, 388, 389, 390, 391>, shard::tensor<>>,
    stage<layers<49, 49>, device::cpu<392, 393, 394, 395, 396, 397, 398, 399>, shard::tensor<>>,
    stage<layers<50, 50>, device::cpu<400, 401, 402, 403, 404, 405, 406, 407>, shard::tensor<>>,
    stage<layers<51, 51>, device::cpu<408, 409, 410, 411, 412, 413, 414, 415>, shard::tensor<>>,
    stage<layers<52, 52>, device::cpu<416, 417, 418, 419, 420, 421, 422, 423>, shard::tensor<>>,
    stage<layers<53, 53>, device::cpu<424, 425, 426, 427, 428, 429, 430, 431>, shard::tensor<>>,
    stage<layers<54, 54>, device::cpu<432, 433, 434, 435, 436, 437, 438, 439>, shard::tensor<>>,
    stage<layers<55, 55>, device::cpu<440, 441, 442, 443, 444, 445, 446, 447>, shard::tensor<>>,
    stage<layers<56, 56>, device::cpu<448, 449, 450, 451, 452, 453, 454, 455>, shard::tensor<>>,
    stage<layers<57, 57>, device::cpu<456, 457, 458, 459, 460, 461, 462, 463>, shard::tensor<>>,
    stage<layers<58, 58>, device::cpu<464, 465, 466, 467, 468, 469, 470, 471>, shard::tensor<>>,
    stage<layers<59, 59>, device::cpu<472, 473, 474, 475, 476, 477, 478, 479>, shard::tensor<>>,
    stage<layers<60, 60>, device::cpu<480, 481, 482, 483, 484, 485, 486, 487>, shard::tensor<>>,
    stage<layers<61, 61>, device::cpu<488, 489, 490, 491, 492, 493, 494, 495>, shard::tensor<>>,
    stage<layers<62, 62>, device::cpu<496, 497, 498, 499, 500, 501, 502, 503>, shard::tensor<>>,
    stage<layers<63, 63>, device::cpu<504, 505, 506, 507, 508, 509, 510, 511>, shard::tensor<>>,
    stage<layers<64, 64>, device::cpu<512, 513, 514, 515, 516, 517, 518, 519>, shard::tensor<>>,
    stage<layers<65, 65>, device::cpu<520, 521, 522, 523, 524, 525, 526, 527>, shard::tensor<>>,
    stage<layers<66, 66>, device::cpu<528, 529, 530, 531, 532, 533, 534, 535>, shard::tensor<>>,
    stage<layers<67, 67>, device::cpu<536, 537, 538, 539, 540, 541, 542, 543>, shard::tensor<>>,
    stage<layers<68, 68>, device::cpu<544, 545, 546, 547, 548, 549, 550, 551>, shard::tensor<>>,
    stage<layers<69, 69>, device::cpu<552, 553, 554, 555, 556, 557, 558, 559>, shard::tensor<>>,
    stage<layers<70, 70>, device::cpu<560, 561, 562, 563, 564, 565, 566, 567>, shard::tensor<>>,
    stage<layers<71, 71>, device::cpu<568, 569, 570, 571, 572, 573, 574, 575>, shard::tensor<>>,
    stage<layers<72, 72>, device::cpu<576, 577, 578, 579, 580, 581, 582, 583>, shard::tensor<>>,
    stage<layers<73, 73>, device::cpu<584, 585, 586, 587, 588, 589, 590, 591>, shard::tensor<>>,
    stage<layers<74, 74>, device::cpu<592, 593, 594, 595, 596, 597, 598, 599>, shard::tensor<>>,
    stage<layers<75, 75>, device::cpu<600, 601, 602, 603, 604, 605, 606, 607>, shard::tensor<>>,
    stage<layers<76, 76>, device::cpu<608, 609, 610, 611, 612, 613, 614, 615>, shard::tensor<>>,
    stage<layers<77, 77>, device::cpu<616, 617, 618, 619, 620, 621, 622, 623>, shard::tensor<>>,
    stage<layers<78, 78>, device::cpu<624, 625, 626, 627, 628, 629, 630, 631>, shard::tensor<>>,
    stage<layers<79, 79>, device::cpu<632, 633, 634, 635, 636, 637, 638, 639>, shard::tensor<>>,
    stage<layers<80, 80>, device::cpu<640, 641, 642, 643, 644, 645, 646, 647>, shard::tensor<>>,
    stage<layers<81, 81>, device::cpu<648, 649, 650, 651, 652, 653, 654, 655>, shard::tensor<>>,
    stage<layers<82, 82>, device::cpu<656, 657, 658, 659, 660, 661, 662, 663>, shard::tensor<>>,
    stage<layers<83, 83>, device::cpu<664, 665, 666, 667, 668, 669, 670, 671>, shard::tensor<>>,
    stage<layers<84, 84>, device::cpu<672, 673, 674, 675, 676, 677, 678, 679>, shard::tensor<>>,
    stage<layers<85, 85>, device::cpu<680, 681, 682, 683, 684, 685, 686, 687>, shard::tensor<>>,
    stage<layers<86, 86>, device::cpu<688, 689, 690, 691, 692, 693, 694, 695>, shard::tensor<>>,
    stage<layers<87, 87>, device::cpu<696, 697, 698, 699, 700, 701, 702, 703>, shard::tensor<>>,
    stage<layers<88, 88>, device::cpu<704, 705, 706, 707, 708, 709, 710, 711>, shard::tensor<>>,
    stage<layers<89, 89>, device::cpu<712, 713, 714, 715, 716, 717, 718, 719>, shard::tensor<>>,
    stage<layers<90, 90>, device::cpu<720, 721, 722, 723, 724, 725, 726, 727>, shard::tensor<>>,
    stage<layers<91, 91>, device::cpu<728, 729, 730, 731, 732, 733, 734, 735>, shard::tensor<>>,
    stage<layers<92, 92>, device::cpu<736, 737, 738, 739, 740, 741, 742, 743>, shard::tensor<>>,
    stage<layers<93, 93>, device::cpu<744, 745, 746, 747, 748, 749, 750, 751>, shard::tensor<>>,
    stage<layers<94, 94>, device::cpu<752, 753, 754, 755, 756, 757, 758, 759>, shard::tensor<>>,
    stage<layers<95, 95>, device::cpu<760, 761, 762, 763, 764, 765, 766, 767>, shard::tensor<>>,
    stage<layers<96, 96>, device::cpu<768, 769, 770, 771, 772, 773, 774, 775>, shard::tensor<>>,
    stage<layers<97, 97>, device::cpu<776, 777, 778, 779, 780, 781, 782, 783>, shard::tensor<>>,
    stage<layers<98, 98>, device::cpu<784, 785, 786, 787, 788, 789, 790, 791>, shard::tensor<>>,
    stage<layers<99, 99>, device::cpu<792, 793, 794, 795, 796, 797, 798, 799>, shard::tensor<>>,
    stage<layers<100, 100>, device::cpu<800, 801, 802, 803, 804, 805, 806, 807>, shard::tensor<>>,
    stage<layers<101, 101>, device::cpu<808, 809, 810, 811, 812, 813, 814, 815>, shard::tensor<>>,
    stage<layers<102, 102>, device::cpu<816, 817, 818, 819, 820, 821, 822, 823>, shard::tensor<>>,
    stage<layers<103, 103>, device::cpu<824, 825, 826, 827, 828, 829, 830, 831>, shard::tensor<>>,
    stage<layers<104, 104>, device::cpu<832, 833, 834, 835, 836, 837, 838, 839>, shard::tensor<>>,
    stage<layers<105, 105>, device::cpu<840, 841, 842, 843, 844, 845, 846, 847>, shard::tensor<>>,
    stage<layers<106, 106>, device::cpu<848, 849, 850, 851, 852, 853, 854, 855>, shard::tensor<>>,
    stage<layers<107, 107>, device::cpu<856, 857, 858, 859, 860, 861, 862, 863>, shard::tensor<>>,
    stage<layers<108, 108>, device::cpu<864, 865, 866, 867, 868, 869, 870, 871>, shard::tensor<>>,
    stage<layers<109, 109>, device::cpu<872, 873, 874, 875, 876, 877, 878, 879>, shard::tensor<>>,
    stage<layers<110, 110>, device::cpu<880, 881, 882, 883, 884, 885, 886, 887>, shard::tensor<>>,
    stage<layers<111, 111>, device::cpu<888, 889, 890, 891, 892, 893, 894, 895>, shard::tensor<>>,
    stage<layers<112, 112>, device::cpu<896, 897, 898, 899, 900, 901, 902, 903>, shard::tensor<>>,
    stage<layers<113, 113>, device::cpu<904, 905, 906, 907, 908, 909, 910, 911>, shard::tensor<>>,
    stage<layers<114, 114>, device::cpu<912, 913, 914, 915, 916, 917, 918, 919>, shard::tensor<>>,
    stage<layers<115, 115>, device::cpu<920, 921, 922, 923, 924, 925, 926, 927>, shard::tensor<>>,
    stage<layers<116, 116>, device::cpu<928, 929, 930, 931, 932, 933, 934, 935>, shard::tensor<>>,
    stage<layers<117, 117>, device::cpu<936, 937, 938, 939, 940, 941, 942, 943>, shard::tensor<>>,
    stage<layers<118, 118>, device::cpu<944, 945, 946, 947, 948, 949, 950, 951>, shard::tensor<>>,
    stage<layers<119, 119>, device::cpu<952, 953, 954, 955, 956, 957, 958, 959>, shard::tensor<>>,
    stage<layers<120, 120>, device::cpu<960, 961, 962, 963, 964, 965, 966, 967>, shard::tensor<>>,
    stage<layers<121, 121>, device::cpu<968, 969, 970, 971, 972, 973, 974, 975>, shard::tensor<>>,
    stage<layers<122, 122>, device::cpu<976, 977, 978, 979, 980, 981, 982, 983>, shard::tensor<>>,
    stage<layers<123, 123>, device::cpu<984, 985, 986, 987, 988, 989, 990, 991>, shard::tensor<>>,
    stage<layers<124, 124>, device::cpu<992, 993, 994, 995, 996, 997, 998, 999>, shard::tensor<>>,
    stage<layers<125, 125>, device::cpu<1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007>, shard::tensor<>>> {
    static_assert(cost(weights::bf16).weight_bytes(device_index{1007}) < 2'000'000'000);
};

struct by_text : planned<llama_405b,
    "0@0,1,2,3,4,5,6,7:tensor;1@8,9,10,11,12,13,14,15:tensor;2@16,17,18,19,20,21,22,23:tensor;"
    "3@24,25,26,27,28,29,30,31:tensor;4@32,33,34,35,36,37,38,39:tensor;5@40,41,42,43,44,45,46,47:tensor;"
    "6@48,49,50,51,52,53,54,55:tensor;7@56,57,58,59,60,61,62,63:tensor;8@64,65,66,67,68,69,70,71:tensor;"
    "9@72,73,74,75,76,77,78,79:tensor;10@80,81,82,83,84,85,86,87:tensor;11@88,89,90,91,92,93,94,95:tensor;"
    "12@96,97,98,99,100,101,102,103:tensor;13@104,105,106,107,108,109,110,111:tensor;14@112,113,114,115,116,117,118,119:tensor;"
    "15@120,121,122,123,124,125,126,127:tensor;16@128,129,130,131,132,133,134,135:tensor;17@136,137,138,139,140,141,142,143:tensor;"
    "18@144,145,146,147,148,149,150,151:tensor;19@152,153,154,155,156,157,158,159:tensor;20@160,161,162,163,164,165,166,167:tensor;"
    "21@168,169,170,171,172,173,174,175:tensor;22@176,177,178,179,180,181,182,183:tensor;23@184,185,186,187,188,189,190,191:tensor;"
    "24@192,193,194,195,196,197,198,199:tensor;25@200,201,202,203,204,205,206,207:tensor;26@208,209,210,211,212,213,214,215:tensor;"
    "27@216,217,218,219,220,221,222,223:tensor;28@224,225,226,227,228,229,230,231:tensor;29@232,233,234,235,236,237,238,239:tensor;"
    "30@240,241,242,243,244,245,246,247:tensor;31@248,249,250,251,252,253,254,255:tensor;32@256,257,258,259,260,261,262,263:tensor;"
    "33@264,265,266,267,268,269,270,271:tensor;34@272,273,274,275,276,277,278,279:tensor;35@280,281,282,283,284,285,286,287:tensor;"
    "36@288,289,290,291,292,293,294,295:tensor;37@296,297,298,299,300,301,302,303:tensor;38@304,305,306,307,308,309,310,311:tensor;"
    "39@312,313,314,315,316,317,318,319:tensor;40@320,321,322,323,324,325,326,327:tensor;41@328,329,330,331,332,333,334,335:tensor;"
    "42@336,337,338,339,340,341,342,343:tensor;43@344,345,346,347,348,349,350,351:tensor;44@352,353,354,355,356,357,358,359:tensor;"
    "45@360,361,362,363,364,365,366,367:tensor;46@368,369,370,371,372,373,374,375:tensor;47@376,377,378,379,380,381,382,383:tensor;"
    "48@384,385,386,387,388,389,390,391:tensor;49@392,393,394,395,396,397,398,399:tensor;50@400,401,402,403,404,405,406,407:tensor;"
    "51@408,409,410,411,412,413,414,415:tensor;52@416,417,418,419,420,421,422,423:tensor;53@424,425,426,427,428,429,430,431:tensor;"
    "54@432,433,434,435,436,437,438,439:tensor;55@440,441,442,443,444,445,446,447:tensor;56@448,449,450,451,452,453,454,455:tensor;"
    "57@456,457,458,459,460,461,462,463:tensor;58@464,465,466,467,468,469,470,471:tensor;59@472,473,474,475,476,477,478,479:tensor;"
    "60@480,481,482,483,484,485,486,487:tensor;61@488,489,490,491,492,493,494,495:tensor;62@496,497,498,499,500,501,502,503:tensor;"
    "63@504,505,506,507,508,509,510,511:tensor;64@512,513,514,515,516,517,518,519:tensor;65@520,521,522,523,524,525,526,527:tensor;"
    "66@528,529,530,531,532,533,534,535:tensor;67@536,537,538,539,540,541,542,543:tensor;68@544,545,546,547,548,549,550,551:tensor;"
    "69@552,553,554,555,556,557,558,559:tensor;70@560,561,562,563,564,565,566,567:tensor;71@568,569,570,571,572,573,574,575:tensor;"
    "72@576,577,578,579,580,581,582,583:tensor;73@584,585,586,587,588,589,590,591:tensor;74@592,593,594,595,596,597,598,599:tensor;"
    "75@600,601,602,603,604,605,606,607:tensor;76@608,609,610,611,612,613,614,615:tensor;77@616,617,618,619,620,621,622,623:tensor;"
    "78@624,625,626,627,628,629,630,631:tensor;79@632,633,634,635,636,637,638,639:tensor;80@640,641,642,643,644,645,646,647:tensor;"
    "81@648,649,650,651,652,653,654,655:tensor;82@656,657,658,659,660,661,662,663:tensor;83@664,665,666,667,668,669,670,671:tensor;"
    "84@672,673,674,675,676,677,678,679:tensor;85@680,681,682,683,684,685,686,687:tensor;86@688,689,690,691,692,693,694,695:tensor;"
    "87@696,697,698,699,700,701,702,703:tensor;88@704,705,706,707,708,709,710,711:tensor;89@712,713,714,715,716,717,718,719:tensor;"
    "90@720,721,722,723,724,725,726,727:tensor;91@728,729,730,731,732,733,734,735:tensor;92@736,737,738,739,740,741,742,743:tensor;"
    "93@744,745,746,747,748,749,750,751:tensor;94@752,753,754,755,756,757,758,759:tensor;95@760,761,762,763,764,765,766,767:tensor;"
    "96@768,769,770,771,772,773,774,775:tensor;97@776,777,778,779,780,781,782,783:tensor;98@784,785,786,787,788,789,790,791:tensor;"
    "99@792,793,794,795,796,797,798,799:tensor;100@800,801,802,803,804,805,806,807:tensor;101@808,809,810,811,812,813,814,815:tensor;"
    "102@816,817,818,819,820,821,822,823:tensor;103@824,825,826,827,828,829,830,831:tensor;104@832,833,834,835,836,837,838,839:tensor;"
    "105@840,841,842,843,844,845,846,847:tensor;106@848,849,850,851,852,853,854,855:tensor;107@856,857,858,859,860,861,862,863:tensor;"
    "108@864,865,866,867,868,869,870,871:tensor;109@872,873,874,875,876,877,878,879:tensor;110@880,881,882,883,884,885,886,887:tensor;"
    "111@888,889,890,891,892,893,894,895:tensor;112@896,897,898,899,900,901,902,903:tensor;113@904,905,906,907,908,909,910,911:tensor;"
    "114@912,913,914,915,916,917,918,919:tensor;115@920,921,922,923,924,925,926,927:tensor;116@928,929,930,931,932,933,934,935:tensor;"
    "117@936,937,938,939,940,941,942,943:tensor;118@944,945,946,947,948,949,950,951:tensor;119@952,953,954,955,956,957,958,959:tensor;"
    "120@960,961,962,963,964,965,966,967:tensor;121@968,969,970,971,972,973,974,975:tensor;122@976,977,978,979,980,981,982,983:tensor;"
    "123@984,985,986,987,988,989,990,991:tensor;124@992,993,994,995,996,997,998,999:tensor;125@1000,1001,1002,1003,1004,1005,1006,1007:tensor"> {
    static_assert(cost(weights::bf16).weight_bytes(device_index{1007}) < 2'000'000'000);
};
// clang-format on

// One layer on one of eight ranks, in elements: q and o 2048 rows, k and v 128, gate and up 6656, down 2048 of 53248.
constexpr std::int64_t matrices = 16384LL * (2048 + 2048 + 128 + 128 + 6656 + 6656) + 2048LL * 53248;
constexpr std::int64_t vectors = 2LL * 16384;

static_assert(by_types::cost(weights::bf16).ranks() == 1008 && by_text::cost(weights::bf16).ranks() == 1008);
static_assert(by_types::cost(weights::bf16).weight_bytes(rank_index{500}) == 2 * matrices + 4 * vectors);
static_assert(by_text::cost(weights::bf16).weight_bytes(rank_index{500}) == 2 * matrices + 4 * vectors);
static_assert(by_types::cost(weights::bf16).weight_bytes(device_index{500}) == 2 * matrices + 4 * vectors);
static_assert(by_types::cost(weights::bf16).flops_per_token(device_index{500}) == 2 * matrices + 4 * 2048);
static_assert(by_types::cost(weights::bf16).flops_per_token(rank_index{1007}) == 2 * matrices + 4 * 2048 + 2 * 16384LL * 16032);
static_assert(by_types::cost(weights::bf16).kv_bytes(rank_index{1007}, 131072) == 2 * 4 * 128 * 131072LL);
static_assert(by_types::cost(weights::bf16).seam_bytes_per_token(0) == 8 * 4 * 16384 && by_types::cost(weights::bf16).seam_bytes_per_token(124) == 8 * 4 * 16384);
static_assert(by_types::cost(weights::bf16).join_bytes_per_token(60) == 4 * 7 * (16384 + 16384 + 53248 + 16384));
static_assert(by_types::plan() == by_text::plan());
static_assert(by_types::plan().substr(0, 42) == "0@0,1,2,3,4,5,6,7:tensor;1@8,9,10,11,12,13");
static_assert(by_types::view().stages.size() == 126 && by_text::view().stages.size() == 126);

static_assert(wide::plan() == "0-127@0,1,2,3,4,5,6,7:tensor");
static_assert(wide::cost(weights::f32).kv_bytes_per_position(rank_index{3}) == 128 * 2 * 4 * 128);
static_assert(wide::cost(weights::f32).joins(0) == 128 * 4 + 2);

/// Qwen3-30B-A3B: 48 layers of 128 experts.
struct qwen3_30b {
    static constexpr auto config = model::qwen3_moe({.layers = 48, .hidden = 2048, .heads = 32, .kv_heads = 4, .head_dim = 128, .experts = 128, .experts_per_token = 8, .expert_width = 768, .vocab = 151936});
};
/// The experts of Kimi-K2, 384 in each of 60 layers, on a plain attention.
struct kimi_k2 {
    static constexpr auto config = model::with_experts(model::llama({.layers = 61, .hidden = 7168, .heads = 64, .head_dim = 128, .ffn = 18432, .vocab = 163840}),
                                                       {.count = 384, .chosen = 8, .width = 2048, .shared_width = 2048}, [](int layer) { return layer > 0; });
};
/// As many layers of as many experts as a model can have.
struct most_routed {
    static constexpr auto config = model::with_experts(model::llama({.layers = most_layers, .hidden = 8192, .heads = 64, .vocab = 128256}),
                                                       {.count = most_experts, .chosen = 8, .width = 2048}, [](int) { return true; });
};

/// Expert e on rank e mod `Ranks`: what no rule says, so a table does.
template <int Ranks, int... Expert>
constexpr placement::table<(Expert % Ranks)...> in_turn(std::integer_sequence<int, Expert...>) {
    return {};
}
template <int Experts, int Ranks>
using dealt_out = decltype(in_turn<Ranks>(std::make_integer_sequence<int, Experts>{}));

template <class Model, class Shard>
struct on_eight : graph<Model, stage<layers<0, Model::config.layers - 1>, device::cpu<0, 1, 2, 3, 4, 5, 6, 7>, Shard>> {};
template <class G>
constexpr std::int64_t bytes_of_last = G::cost(weights::bf16).weight_bytes(device_index{7});

// Each eighth of Qwen3-30B: attention by heads, 16 experts of 3 x 768 x 2048, the router and the norms whole.
constexpr std::int64_t of_qwen3 = 2 * 48 * (2LL * 4 * 128 * 2048 + 2LL * 128 * 2048 + 16LL * 3 * 768 * 2048) + 48 * 4 * (128LL * 2048 + 2 * 2048 + 2 * 128) +
                                  (4 + 2) * 18992LL * 2048 + 4 * 2048;
static_assert(bytes_of_last<on_eight<qwen3_30b, shard::by_default>> == of_qwen3);
static_assert(bytes_of_last<on_eight<qwen3_30b, shard::both<shard::tensor<>, shard::expert<dealt_out<128, 8>>>>> == of_qwen3);
static_assert(bytes_of_last<on_eight<qwen3_30b, shard::expert<placement::exact>>> == 2LL * 48 * 16 * 3 * 768 * 2048);
static_assert(bytes_of_last<on_eight<qwen3_30b, shard::expert<placement::at_load>>> == 2LL * 48 * (128 - 7) * 3 * 768 * 2048);
static_assert(bytes_of_last<on_eight<qwen3_30b, shard::expert_width<join::reduce>>> == 2LL * 48 * 128 * 3 * 96 * 2048);
static_assert(bytes_of_last<on_eight<kimi_k2, shard::expert<dealt_out<384, 8>>>> == 2LL * 60 * 48 * 3 * 2048 * 7168);
static_assert(bytes_of_last<on_eight<most_routed, shard::expert<dealt_out<most_experts, 8>>>> == 2LL * 256 * 128 * 3 * 2048 * 8192);
static_assert(bytes_of_last<on_eight<most_routed, shard::expert_width<>>> == 2LL * 256 * 1024 * 3 * 256 * 8192);
struct most_whole : graph<most_routed, stage<layers<0, 255>>> {};
static_assert(most_whole::cost(weights::bf16).flops_per_token(rank_index{0}) > 2LL * 256 * 8 * 3 * 2048 * 8192);
// A pipeline of a stage for every layer.
struct deep_pipeline : pipelined<qwen3_30b, 48> {};
static_assert(deep_pipeline::cost(weights::bf16).weight_bytes(device_index{24}) == 2 * (36LL * 2 * 128 * 2048 + 128LL * 3 * 768 * 2048) + 4 * (128LL * 2048 + 2 * 2048 + 2 * 128));
}  // namespace

TEST_CASE("the largest map is placed, and costs what it says") {
    static std::vector<int> layers, owners;
    for (int layer = 0; layer < most_layers; ++layer) {
        layers.push_back(layer);
        for (int e = 0; e < most_experts; ++e) owners.push_back(e < 8 ? e : (e * 7 + layer) % 7);
    }
    placed_graph const placed(on_eight<most_routed, shard::expert<placement::at_load>>::view(), {8, 0, most_experts, layers, owners});
    CHECK(cost_view(placed.view(), weights::bf16, dtype::f32).weight_bytes(device_index{7}) == 2LL * 256 * 3 * 2048 * 8192);
}

TEST_CASE("the largest graphs have the same constants at run time") {
    CHECK(by_types::ir().nodes.size() == by_text::ir().nodes.size());
    std::int64_t sum = 0;
    for (int r = 0; r < 1008; ++r) {
        CHECK(by_types::cost(weights::bf16).weight_bytes(rank_index{r}) == by_text::cost(weights::bf16).weight_bytes(device_index{r}));
        sum += by_types::cost(weights::bf16).weight_bytes(rank_index{r});
    }
    // Every matrix once, vectors eight times, embedding (float32) and head.
    CHECK(sum == 126 * 8 * (2 * matrices + 4 * vectors) + (4 + 2) * 128256LL * 16384 + 8 * 4 * 16384);
}
