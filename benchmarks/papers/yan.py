"""Yan and Yu, IJCNN 2013: claims on a sparse similarity matrix."""

from benchmarks.papers._frame import Claim, Entry, Paper

_OXFORD = "Oxford5K and Oxford105K are not available here"
_WORDS = "paris_subset_bovw20k.npz"
_RERANKED = (
    _WORDS,
    "paris_subset_geometry.npz",
    "ukbench1000_geometry.npz",
    "ukbench1000_codebook20k.npz",
)

TABLE_II = Entry(
    "Table II",
    "tf-idf and the learned similarity",
    (
        Claim(
            "m",
            "The learned similarity is better than tf-idf, with RootSIFT words (row m)",
            "V",
            "improves the mAP by 18.8%",
            0.130,
        ),
        Claim(
            "n",
            "The learned similarity is better after spatial re-ranking and query "
            "expansion (row n)",
            "V",
            "11.2% (0.816 vs 0.908)",
            0.092,
        ),
        Claim(
            "o",
            "The learned similarity is better among background images (row o)",
            "V",
            "on Paris101K ... 11.8%",
            0.069,
        ),
        Claim(
            "p",
            "The learned similarity is better among background images, after "
            "re-ranking and expansion (row p)",
            "V",
            "13.0% ... after SR/QE",
            0.090,
        ),
        Claim(
            "i",
            "The learned similarity is better than tf-idf, with SIFT words (row i)",
            "V",
            "improved by 20.2%",
            0.133,
        ),
        Claim(
            "pictures",
            "The learned similarity is better with RootSIFT words of the pictures of "
            "row i (row m)",
            "V",
            "improves the mAP by 18.8%",
            0.130,
        ),
        Claim(
            "reduced",
            "The gain is smaller after re-ranking and expansion",
            "V",
            "often reduced after SR/QE",
            0.038,
        ),
        Claim(
            "positives",
            "The gain is larger with more positive images",
            "V",
            "because there are more Positive images",
            0.024,
        ),
        Claim(
            "a-h",
            "The learned similarity is better (rows a to h)",
            "V",
            "on the Oxford5K dataset",
            missing=_OXFORD,
        ),
        Claim(
            "j-l",
            "The learned similarity is better with SIFT words, after re-ranking and "
            "among background images (rows j to l)",
            "V",
            "12.6% (0.783 vs 0.882) in (j)",
            0.099,
            missing="the pictures of row i leave no room for a gain",
        ),
    ),
    (*_RERANKED, "ukbench_sample80.npz"),
)

TABLE_III = Entry(
    "Table III",
    "other systems",
    (
        Claim(
            "soft",
            "The learned similarity is better than soft assignment (rows a, c)",
            "V-A",
            "5.1% (0.825 vs 0.867)",
            0.042,
        ),
        Claim(
            "reciprocal",
            "The learned similarity is better than k-reciprocal neighbours (rows b, c)",
            "V-A",
            "9.8% (0.803 vs 0.882)",
            0.079,
        ),
        Claim(
            "independent",
            "Words of another collection give a lower mAP",
            "V-A",
            "independent vocabulary ... decreases",
            0.116,
        ),
        Claim(
            "f-i",
            "The learned similarity is better than discriminative query expansion "
            "(rows f to i)",
            "V-A",
            "6.8% (0.850 vs 0.908)",
            0.058,
            missing="the system of the comparison is not published as code",
        ),
    ),
    _RERANKED,
)

FIGURES = (
    Entry(
        "Figure 2",
        "average precision by landmark",
        (
            Claim(
                "all",
                "The smallest gain of a landmark is above 0",
                "V",
                "improves AP for all landmarks",
                unit="AP",
            ),
            Claim(
                "large",
                "The gain rises with the number of positive images, by rank "
                "correlation",
                "V",
                "especially for those with a large number",
                unit="correlation",
                missing="each landmark has 55 or 56 images here",
            ),
        ),
        (_WORDS,),
    ),
    Entry(
        "Figure 3",
        "similarities of matching and other pairs",
        (
            Claim(
                "overlap",
                "The overlap shrinks: the area under the ROC curve of unseen pairs "
                "grows",
                "V-B",
                "overlap ... shrinks",
                unit="area",
            ),
        ),
        (_WORDS,),
    ),
    Entry(
        "Figure 4",
        "neighbours per word",
        (
            Claim(
                "one",
                "One neighbour per word is better than none",
                "V-C",
                "we observe an increase of test mAP",
            ),
            Claim(
                "saturates",
                "The third neighbour adds less than half of the gain of the first two",
                "V-C",
                "saturates when k grows to 2",
            ),
        ),
        (_WORDS,),
    ),
    Entry(
        "Figure 5",
        "time to traverse the index by neighbours",
        (
            Claim(
                "grows",
                "The time grows with each neighbour",
                "V-C",
                "increase in ... traversal time",
                unit="ms",
            ),
            Claim(
                "linear",
                "The time grows linearly: no step differs from the mean step by more "
                "than half of the mean step",
                "V-C",
                "linearly proportional",
                unit="ms",
            ),
        ),
    ),
    Entry(
        "Figure 6",
        "test mAP by iterations",
        (
            Claim(
                "rises",
                "mAP rises from the start to the peak of the other runs",
                "V-D",
                "first increases until it reaches the peak",
            ),
            Claim(
                "falls",
                "mAP falls from this peak to the last iteration",
                "V-D",
                "Then it starts to decline",
            ),
            Claim(
                "held_out",
                "Held-out images choose a matrix that is better than the last one",
                "IV-D",
                "metric with the best performance",
            ),
        ),
        (_WORDS,),
    ),
    Entry(
        "Table IV",
        "unknowns and training time",
        (
            Claim(
                "unknowns",
                "The number of unknowns grows linearly, by the measure of Figure 5",
                "V-E",
                "grows linearly",
                unit="thousand",
            ),
            Claim(
                "time",
                "The training time grows linearly, by the measure of Figure 5",
                "VI",
                "only a linear increase",
                unit="s",
            ),
        ),
    ),
)

PAPER = Paper(
    "yan",
    "Yan and Yu: Sparse Similarity Matrix Learning for Visual Object Retrieval, IJCNN "
    "2013",
    "SparseMahalanobisLearner",
    "SparseMahalanobisLearner.from_paper(words=words)",
    (
        "The data are 276 photographs of Paris with 20,000 words. The paper has the "
        "6,400 photographs of Paris6K and 500,000 words.",
        "As in the paper, a training set contains four fifths of the images that are "
        "not marked queries. The queries search the whole collection, including the "
        "training images. There are five random training sets.",
        "SIFT words exist only for the 80 pictures of UKbench. There are 2,000 words. "
        "One picture of each object is a query, the others are for training. There are "
        "five draws.",
        "The background of rows o and p consists of the images of UKbench, with "
        "UKbench's words. The words of the collection are rounded to these.",
        "Re-ranking verifies the top 200; expansion averages the verified images.",
        "Times are measured on synthetic words.",
    ),
    ("paris", "ukbench", "pictures", "words"),
    ("Table I describes data, and Figure 1 shows an example.",),
    "benchmarks.papers._yan_runs",
    (TABLE_II, TABLE_III, *FIGURES),
)
