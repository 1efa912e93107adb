"""What is known about the five datasets of the paper: what they hold, whose they are, and their files.

Sizes and digests of the downloads are as TensorFlow Datasets publishes them. A download that was packed again has
another digest and the same data: `contents` tells the data itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SPLITS = ("train", "test")
PUBLISHED = "published"
"""What `File.contents` says of the data as their authors published them; of other known data, which copy they are."""
DOUBLED = "48×48 copy: each pixel doubled, images passed through JPEG once"
CROPPED_AGAIN = "copy re-cropped from the full-number images"


@dataclass(frozen=True)
class File:
    """One file as its authors publish it.

    A file inside an archive has no `urls` of its own: `archive` names the file to download, whose `content_size` counts
    the files of it that are used. SVHN's files are compressed inside: their content is the bytes of the images in the
    order of the file, then the labels as one byte each, 0 … 9.
    """

    split: str  # empty: an archive of both
    name: str  # without .gz
    size: int  # bytes of the download
    content_size: int  # bytes of what is in it, uncompressed
    urls: tuple[str, ...]  # mirrors, best first
    published: str  # "sha256:…" of the download
    contents: dict[str, str]  # sha256 of its content → PUBLISHED, or words that say which copy it is
    published_content: str = ""  # "md5:…" of its published content, where no sha256 of it is known
    archive: str = ""

    @property
    def download_name(self) -> str:
        """The file's name as it is downloaded.

        >>> DESCRIPTIONS["mnist"].files[0].download_name
        'train-images-idx3-ubyte.gz'
        """
        return self.urls[0].rsplit("/", 1)[1] if self.urls else self.name


@dataclass(frozen=True)
class Description:
    """One dataset."""

    title: str
    summary: str
    classes: tuple[str, ...]
    channels: int
    side: int  # pixels
    counts: dict[str, int]  # split → images
    licence: str
    citation: str
    homepage: str
    files: tuple[File, ...] = field(repr=False)
    forms: tuple[tuple[str, ...], ...] = field(default=(), repr=False)  # other sets of files that are all of it

    @property
    def downloads(self) -> tuple[File, ...]:
        """The files to download: all but those that come in an archive."""
        return tuple(file for file in self.files if not file.archive)

    def names(self, split: str) -> tuple[str, ...]:
        """The files of a split, without .gz.

        >>> DESCRIPTIONS["svhn"].names("test")
        ('test_32x32.mat',)
        """
        return tuple(file.name for file in self.files if file.split == split)


def _file(
    download: tuple[str, tuple[str, ...], str, int, int],  # split, base URLs, name, bytes of it and of its content
    sha256: str,
    contents: dict[str, str],
    content_digest: str = "",
) -> File:
    split, bases, name, size, content_size = download
    return File(
        split,
        name.removesuffix(".gz"),
        size,
        content_size,
        tuple(f"{base}/{name}" for base in bases),
        f"sha256:{sha256}",
        contents,
        content_digest,
    )


def _in_cifar10(name: str, sha256: str) -> File:
    split = "test" if name == "test_batch.bin" else "train"
    return File(split, name, 30_730_000, 30_730_000, (), "", {sha256: PUBLISHED}, archive="cifar-10-binary.tar")


DIGITS = tuple(str(digit) for digit in range(10))
CLOTHES = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")

_SMALLNORB = ("https://cs.nyu.edu/~ylclab/data/norb-v1.0-small", "https://cs.nyu.edu/~yann/data/norb-v1.0-small")
_SMALLNORB_TRAIN = "smallnorb-5x46789x9x18x6x2x96x96-training"
_SMALLNORB_TEST = "smallnorb-5x01235x9x18x6x2x96x96-testing"
_MNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
    "https://raw.githubusercontent.com/fgnt/mnist/master",
    "http://yann.lecun.com/exdb/mnist",
)
_FASHIONMNIST = (
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
)
_SVHN = ("http://ufldl.stanford.edu/housenumbers", "https://ufldl.stanford.edu/housenumbers")
_CIFAR10_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_CIFAR10 = (
    "https://www.cs.toronto.edu/~kriz",
    "https://cave.cs.toronto.edu/kriz",
    "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10",
)

DESCRIPTIONS: dict[str, Description] = {
    "smallnorb": Description(
        title="smallNORB",
        summary="grey stereo pairs of 50 toys under 6 lightings, 9 elevations and 18 azimuths",
        classes=("animal", "human", "airplane", "truck", "car"),
        channels=2,
        side=96,
        counts={"train": 24_300, "test": 24_300},
        licence="for research purposes; it cannot be sold",
        citation="Y. LeCun, F. J. Huang, L. Bottou: Learning Methods for Generic Object Recognition with Invariance to "
        "Pose and Lighting. CVPR 2004",
        homepage="https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/",
        files=(
            _file(
                ("train", _SMALLNORB, f"{_SMALLNORB_TRAIN}-dat.mat.gz", 131_896_188, 447_897_624),
                "5ffd6272a07d32695ee1082a26a41a93a37aab8c28da047f8c34ed348d214873",
                {"cb630cba1abeea921ddfe5e4fa8db102d5271f157689b7b172786a670bcc2536": DOUBLED},
                content_digest="md5:8138a0902307b32dfa0025a36dfa45ec",
            ),
            _file(
                ("train", _SMALLNORB, f"{_SMALLNORB_TRAIN}-cat.mat.gz", 348, 97_220),
                "2784e542c1922060691090952b6cd6278879a216c90f81476f0f00256d42cdaa",
                {"591ed90c090cb6724593e8de28180bd602095ee8ec82bd1a5ca30b488cd1d06e": PUBLISHED},
            ),
            _file(
                ("train", _SMALLNORB, f"{_SMALLNORB_TRAIN}-info.mat.gz", 71_052, 388_820),
                "de7eb932ebe7a4ee16217fead60660d0eb3d23632c2f4d1c51f88c501c17bf32",
                {"6b4075d3800ba0c6fa8c46a02f672572abe7b93f7ed82fb7668354a99ef03306": PUBLISHED},
            ),
            _file(
                ("test", _SMALLNORB, f"{_SMALLNORB_TEST}-dat.mat.gz", 130_799_817, 447_897_624),
                "cf7104eed3e51174d2f65b66d1e5878b9da233b886f161b0d88f4510ba2c7474",
                {"bd9d83c1db4b9cc939dccd5f48c1cbb9cc83b7a4e82475c49a32fc020e15dc03": DOUBLED},
                content_digest="md5:e9920b7f7b2869a8f1a12e945b2c166c",
            ),
            _file(
                ("test", _SMALLNORB, f"{_SMALLNORB_TEST}-cat.mat.gz", 347, 97_220),
                "ecaf6d5bb8c3bc5eab9cf0258f6d2198dd474e016e374836fc097f2e5ff509ff",
                {"591ed90c090cb6724593e8de28180bd602095ee8ec82bd1a5ca30b488cd1d06e": PUBLISHED},
            ),
            _file(
                ("test", _SMALLNORB, f"{_SMALLNORB_TEST}-info.mat.gz", 10_428, 388_820),
                "16adf314226327ee006d1a44db8cfef52773c06c829951d5653a9f6f310248a2",
                {"318f817236b7c97af03cd90e07a9cbb4346e20ef83a1118a61eeb50e3b96db7e": PUBLISHED},
            ),
        ),
    ),
    "mnist": Description(
        title="MNIST",
        summary="handwritten digits",
        classes=DIGITS,
        channels=1,
        side=28,
        counts={"train": 60_000, "test": 10_000},
        licence="CC BY-SA 3.0",
        citation="Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-Based Learning Applied to Document Recognition. "
        "Proceedings of the IEEE 86(11), 1998",
        homepage="http://yann.lecun.com/exdb/mnist/",
        files=(
            _file(
                ("train", _MNIST, "train-images-idx3-ubyte.gz", 9_912_422, 47_040_016),
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                {"ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db": PUBLISHED},
            ),
            _file(
                ("train", _MNIST, "train-labels-idx1-ubyte.gz", 28_881, 60_008),
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                {"65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5": PUBLISHED},
            ),
            _file(
                ("test", _MNIST, "t10k-images-idx3-ubyte.gz", 1_648_877, 7_840_016),
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                {"0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7": PUBLISHED},
            ),
            _file(
                ("test", _MNIST, "t10k-labels-idx1-ubyte.gz", 4_542, 10_008),
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                {"ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2": PUBLISHED},
            ),
        ),
    ),
    "fashionmnist": Description(
        title="FashionMNIST",
        summary="grey photographs of clothes",
        classes=CLOTHES,
        channels=1,
        side=28,
        counts={"train": 60_000, "test": 10_000},
        licence="MIT",
        citation="H. Xiao, K. Rasul, R. Vollgraf: Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine "
        "Learning Algorithms. arXiv:1708.07747, 2017",
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        files=(
            _file(
                ("train", _FASHIONMNIST, "train-images-idx3-ubyte.gz", 26_421_880, 47_040_016),
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                {"c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888": PUBLISHED},
            ),
            _file(
                ("train", _FASHIONMNIST, "train-labels-idx1-ubyte.gz", 29_515, 60_008),
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                {"bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9": PUBLISHED},
            ),
            _file(
                ("test", _FASHIONMNIST, "t10k-images-idx3-ubyte.gz", 4_422_102, 7_840_016),
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                {"5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b": PUBLISHED},
            ),
            _file(
                ("test", _FASHIONMNIST, "t10k-labels-idx1-ubyte.gz", 5_148, 10_008),
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                {"0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34": PUBLISHED},
            ),
        ),
    ),
    "svhn": Description(
        title="SVHN",
        summary="house numbers from street views, cropped to single digits",
        classes=DIGITS,
        channels=3,
        side=32,
        counts={"train": 73_257, "test": 26_032},
        licence="for non-commercial use only",
        citation="Y. Netzer, T. Wang, A. Coates, A. Bissacco, B. Wu, A. Y. Ng: Reading Digits in Natural Images with "
        "Unsupervised Feature Learning. NIPS Workshop on Deep Learning and Unsupervised Feature Learning, 2011",
        homepage="http://ufldl.stanford.edu/housenumbers/",
        files=(
            _file(
                ("train", _SVHN, "train_32x32.mat", 182_040_794, 225_118_761),
                "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
                {"f3dfd848c04991b49502f57db58cbba8f23a11b35518c426c65cb86017a2ac8c": CROPPED_AGAIN},
            ),
            _file(
                ("test", _SVHN, "test_32x32.mat", 64_275_384, 79_996_336),
                "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
                {"858437eb2fd47b0c9352d41ff446050fd59dce7c72a22673c216114dd7ce4f5d": CROPPED_AGAIN},
            ),
        ),
    ),
    "cifar10": Description(
        title="CIFAR-10",
        summary="small colour photographs of animals and vehicles",
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        channels=3,
        side=32,
        counts={"train": 50_000, "test": 10_000},
        licence="none stated; the author asks to cite the report",
        citation="A. Krizhevsky: Learning Multiple Layers of Features from Tiny Images. Technical report, University "
        "of Toronto, 2009",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        files=(
            _file(
                ("", _CIFAR10, "cifar-10-binary.tar.gz", 170_052_171, 184_380_000),
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                {},
            ),
            _in_cifar10("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
            _in_cifar10("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
            _in_cifar10("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
            _in_cifar10("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
            _in_cifar10("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
            _in_cifar10("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
        ),
        forms=(
            tuple(f"{name}.bin" for name in _CIFAR10_BATCHES),
            _CIFAR10_BATCHES,
            ("cifar-10-binary.tar",),
            ("cifar-10-python.tar",),
        ),
    ),
}
